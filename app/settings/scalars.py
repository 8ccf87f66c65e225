"""How a plain piece of text is read: YAML 1.2's core rules, in the file and in the environment alike.

YAML 1.1, which PyYAML follows by default, reads `on` and `off` as booleans, and they are words of ours (`mode: on`). It also
reads `010` as eight and `1:30` as ninety. Here a number looks like a number, a boolean is `true` or `false`, and the rest is
text. `1` and `1.0` stay different: thresholds mean tokens by the one and a share of the window by the other.
"""

from __future__ import annotations

import re

NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
INT = re.compile(r"[-+]?[0-9]{1,18}\Z")
FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?\Z")

Scalar = None | bool | int | float | str


def plain(text: str) -> Scalar:
    """The value of an unquoted scalar."""
    if NULL.match(text):
        return None
    if BOOL.match(text):
        return text.lower() == "true"
    if INT.match(text):
        return int(text)
    if FLOAT.match(text):
        return float(text)
    return text

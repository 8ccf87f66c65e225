"""The YAML file as plain data, with the line of every key kept, `${NAME}` filled in, and duplicate keys found.

PyYAML parses and gives us its nodes, which know their lines; the values are made here, by YAML 1.2's rules (see `scalars`).
A fault doesn't stop the reading: the rest of the file is looked at too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from app.settings import scalars
from app.settings.broken import Loc
from app.settings.faults import Fault, Origin
from app.settings.scalars import Scalar

# `$${` is a literal `${`; a `${` that is no reference is a fault
_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?")
# where PyYAML's own messages repeat words of the file
_NAMED = re.compile(r"\b(alias|anchor|handle) ['\"].*", re.S)
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """Resolves plain scalars by YAML 1.2's core rules; only ever used to compose."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  PyYAML's own attribute


for _tag, _pattern in (("null", scalars.NULL), ("bool", scalars.BOOL), ("int", scalars.INT), ("float", scalars.FLOAT)):
    _Loader.add_implicit_resolver(_TAG + _tag, _pattern, None)


@dataclass(slots=True)
class Document:
    """A configuration file that was read: `data`, who is at which line, what is wrong, and the variables it refers to."""

    data: dict[str, object] = field(default_factory=dict)
    origins: dict[Loc, Origin] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    variables: set[str] = field(default_factory=set)


def read(path: Path, environ: Mapping[str, str]) -> Document:
    """Read and parse a file. Never raises: what is wrong is in `faults`."""
    document = Document(origins={(): Origin(str(path), 1)})
    start = Origin(str(path))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        document.faults.append(
            Fault(start, (), "there is no such file; check the path, or run without a file for the defaults")
        )
    except UnicodeDecodeError:
        document.faults.append(Fault(start, (), "the file is not UTF-8 text; save it as UTF-8"))
    except OSError as error:
        document.faults.append(
            Fault(start, (), f"the file can't be read ({error.strerror}); check what it is and who may read it")
        )
    else:
        _parse(text, document, str(path), environ)
    return document


def value(text: str) -> object:
    """One value written as YAML or JSON, as in an environment variable; text that is neither stays text."""
    document = Document(origins={(): Origin("")})
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError:
        return text
    made = _Builder(document, "", None).build(node, ()) if node else None
    return text if document.faults else made


def _parse(text: str, document: Document, name: str, environ: Mapping[str, str]) -> None:
    if not text.strip():
        text = "the file is empty; write `{}` for the defaults, or run without a file"
        document.faults.append(Fault(Origin(name, 1), (), text))
        return
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        document.faults.append(_syntax(error, text, name))
        return
    data = _Builder(document, name, environ).build(node, ()) if node else {}
    if isinstance(data, dict):
        document.data = data
    elif data is not None:
        document.faults.append(
            Fault(Origin(name, 1), (), "the file must be a mapping of sections, like `listen: {port: 8787}`")
        )


def _syntax(error: yaml.YAMLError, text: str, name: str) -> Fault:
    """PyYAML's complaint without its excerpt of the file, and without quoted words: they may come out of a secret."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text[: error.position].count("\n") + 1
        return Fault(
            Origin(name, line), (), f"is no YAML: character U+{int(error.character):04X} is not allowed; remove it"
        )
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark else 1
    problem = _NAMED.sub(r"\1", str(getattr(error, "problem", None) or "it can't be parsed"))
    lines = text.splitlines()
    hint = ""
    if mark and "${" in "".join(lines[max(0, mark.line - 1) : mark.line + 1]):
        hint = '; inside { } and [ ] write "${NAME}" in quotes'
    return Fault(
        Origin(name, line), (), f"is no YAML: {problem}; check spaces, quotes and brackets from here upwards{hint}"
    )


class _Builder:
    """Makes plain data from nodes, filling in the document's origins and faults on the way.

    `environ` None: no substitution.
    """

    def __init__(self, document: Document, name: str, environ: Mapping[str, str] | None) -> None:
        self.document = document
        self.name = name
        self.environ = environ
        self.open: set[int] = set()

    def build(self, node: yaml.Node, loc: Loc) -> object:
        if id(node) in self.open:
            self.fault(node, loc, "contains itself; write the value out instead of the alias")
            return None
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, loc)
            if isinstance(node, yaml.SequenceNode):
                return self.sequence(node, loc)
            return self.scalar(node, loc)
        finally:
            self.open.remove(id(node))

    def mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, object]:
        self.known_tag(node, loc, "map")
        made: dict[str, object] = {}
        for key, entry in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.fault(key, loc, "a key must be a plain word; check the brackets and braces here")
                continue
            name = str(key.value)
            if name in made:
                first = self.document.origins[(*loc, name)].line
                self.fault(key, (*loc, name), f"this key stands here twice, first at line {first}; remove one of them")
                continue
            self.document.origins[(*loc, name)] = Origin(self.name, key.start_mark.line + 1)
            made[name] = self.build(entry, (*loc, name))
        return made

    def sequence(self, node: yaml.SequenceNode, loc: Loc) -> list[object]:
        self.known_tag(node, loc, "seq")
        made: list[object] = []
        for index, entry in enumerate(node.value):
            self.document.origins[(*loc, index)] = Origin(self.name, entry.start_mark.line + 1)
            made.append(self.build(entry, (*loc, index)))
        return made

    def scalar(self, node: yaml.Node, loc: Loc) -> Scalar:
        self.known_tag(node, loc, "str", "null", "bool", "int", "float")
        if self.environ is not None and "${" in node.value:
            return self.substituted(node, loc)
        return str(node.value) if node.tag == _TAG + "str" else scalars.plain(node.value)

    def substituted(self, node: yaml.Node, loc: Loc) -> str | None:
        """Text stays text, whatever it looks like: the option's own type decides how to read it. A value that is nothing but
        one reference and comes out empty or `null` is null, so that `${KEY:-}` is "none unless set"."""

        def fill(found: re.Match[str]) -> str:
            if found[0] == "$${":
                return "${"
            if not found["name"]:
                self.fault(
                    node, loc, "has a ${ that begins no ${NAME} or ${NAME:-default}; write $${ for a literal one"
                )
                return ""
            self.document.variables.add(found["name"])
            text = environ.get(found["name"])
            if found["default"] is not None:
                return text or str(found["default"])
            if text is None:
                missing = f"environment variable {found['name']} is not set"
                self.fault(node, loc, f"{missing}; set it, or write ${{{found['name']}:-default}}")
            return text or ""

        environ = self.environ or {}
        text = _REFERENCE.sub(fill, node.value)
        single = _REFERENCE.fullmatch(node.value)
        return None if single and single["name"] and scalars.NULL.match(text) else text

    def known_tag(self, node: yaml.Node, loc: Loc, *names: str) -> None:
        if node.tag not in [_TAG + name for name in names]:
            self.fault(node, loc, "has a YAML tag (`!…`), which means nothing here; remove it, or quote the value")

    def fault(self, node: yaml.Node, loc: Loc, text: str) -> None:
        self.document.faults.append(Fault(Origin(self.name, node.start_mark.line + 1), loc, text))

"""The kinds of value that an option can have.

Each is a plain Python type with three things attached: what makes a value acceptable, the words that name the kind (the
reference table and the faults use the same ones), and, where a value may hold a secret, how it is masked. Checks say
what is wanted and never repeat what was given: it may be a key in the wrong place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, SecretStr

from app.settings import scalars
from app.settings.keys import encryption_keys


@dataclass(frozen=True, slots=True)
class Kind:
    """The words for a kind of value, as in "must be …"."""

    words: str


@dataclass(frozen=True, slots=True)
class Masked:
    """How a value that may hold a secret is shown."""

    mask: Callable[[Any], object]


def nearest(word: object, known: Sequence[str], prefix: str = "") -> str:
    """`; did you mean …?`, or nothing. Only known words are ever shown, behind `prefix`."""
    close = get_close_matches(word, known, n=1) if isinstance(word, str) else []
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def _threshold(value: object) -> int | float:
    number = scalars.plain(value.strip()) if isinstance(value, str) else value
    if type(number) is int and number >= 1:
        return number
    if type(number) is float and 0 < number <= 1:
        return number
    raise ValueError(f"must be {TOKENS_OR_SHARE}: 1 is one token, 1.0 the whole window")


def _gain(value: object) -> int | float:
    number = scalars.plain(value.strip()) if isinstance(value, str) else value
    if type(number) in (int, float) and number == 0:
        return 0
    try:
        return _threshold(value)
    except ValueError:
        raise ValueError(f"must be {TOKENS_OR_SHARE}, or 0 for any gain") from None


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


def _strategy(value: str) -> str:
    if value in STRATEGY_NAMES or _CALLABLE.match(value):
        return value
    raise ValueError(f"must be {_STRATEGY_WORDS}{nearest(value, STRATEGY_NAMES)}")


def http_url(value: str) -> str:
    """An http(s) address that paths are put behind: a path of its own is fine, a query, fragment or login is not."""
    try:
        url = urlsplit(value)
        sound = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        sound = False
    if not sound or re.search(r"[\s\x00-\x1f\x7f]", value):
        raise ValueError("must be an address like https://host or http://host:port/path")
    if url.username is not None or url.password is not None:
        raise ValueError("must not carry a login; use api_key or headers for credentials")
    if "?" in value or "#" in value:
        raise ValueError("must not carry a query or a fragment; leave out everything from ? or # on")
    return value.rstrip("/")


_ENDPOINT = re.compile(r"/v1(?:beta)?\Z|(?:/v1)?/(?:chat/completions|responses|messages)\Z")
"""What clients write behind a base URL; providers' pages often show the whole address."""


def _base_url(value: str) -> str:
    url = http_url(value)
    if last := _ENDPOINT.search(url):
        raise ValueError(f"must be what comes before {last[0]}; leave {last[0]} out")
    return url


def _store_url(value: str) -> str:
    scheme, found, rest = value.partition("://")
    address, _, path = rest.partition("/")
    host = address.rpartition("@")[2]
    sound = found and {
        "memory": rest == "",
        "sqlite": address == "" and bool(path.strip("/")),
        "redis": bool(host),
        "rediss": bool(host),
        "redis+cluster": bool(host),
        "rediss+cluster": bool(host),
        "redis+sentinel": bool(host) and bool(path.strip("/")),
        "rediss+sentinel": bool(host) and bool(path.strip("/")),
    }.get(scheme, False)
    if not sound or re.search(r"\s", value):
        raise ValueError(f"must be {_STORE_WORDS}")
    return value


def _archive_url(value: str) -> str:
    scheme, found, rest = value.partition("://")
    if found:
        sound = (scheme == "file" and rest.startswith("/")) or (scheme == "s3" and rest[:1] not in ("", "/"))
    else:
        sound = bool(_CALLABLE.match(value))
    if not sound:
        raise ValueError(f"must be {_ARCHIVE_WORDS}, or null for the store")
    return value


def _secret(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text:
        raise ValueError("is empty; leave the key out or write null for none")
    if not re.fullmatch(r"[!-~]+", text):
        raise ValueError("must be one word of visible ASCII characters; check for spaces and line breaks")
    return value


def _encryption_key(value: SecretStr) -> SecretStr:
    encryption_keys(_secret(value).get_secret_value())
    return value


def _headers(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise ValueError("has a name that is no HTTP header name; use letters, digits and hyphens")
        if re.search(r"[\r\n\x00]", text):
            raise ValueError("has a value with a line break; HTTP headers are one line")
    return {name.lower(): text for name, text in value.items()}


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("must not be empty")
    if len(set(values)) < len(values):
        raise ValueError("must not name anything twice")
    return values


def _text_file(path: Path) -> Path:
    try:
        if path.read_text(encoding="utf-8").strip():
            return path
        fault = "the file is empty; write something into it, or leave the key out"
    except FileNotFoundError:
        fault = "there is no such file; check the path (a relative one starts at the working directory)"
    except UnicodeDecodeError:
        fault = "the file is not UTF-8 text; save it as UTF-8"
    except (OSError, ValueError) as error:
        fault = f"the file can't be read ({getattr(error, 'strerror', None) or 'no path'}); check what it is and who may read it"
    raise ValueError(fault)


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
        raise ValueError(
            "must consist of letters, digits, dots, hyphens and underscores, and begin with a letter or digit"
        )
    return value


def mask_url(value: str | None) -> str | None:
    """An address without its login and without its query, either of which may hold a password."""
    return value and re.sub(r"\?.*\Z", "?***", re.sub(r"\A([^:/]*://).*@", r"\1***@", value, flags=re.S), flags=re.S)


def mask_headers(value: dict[str, str]) -> dict[str, str]:
    """Names only: any header may be a credential."""
    return dict.fromkeys(value, "***")


def tokens(threshold: int | float, window: int) -> int:
    """A threshold in tokens: an int is tokens already, a float is a share of `window` (tokens). At least 1."""
    return threshold if isinstance(threshold, int) else max(1, math.floor(threshold * window + 1e-6))


Format = Literal["openai-chat", "openai-responses", "anthropic-messages", "gemini"]
Stage = Literal["tool_result_clearing", "sliding_window", "summarize"]

STRATEGY_NAMES = ("summarize", "sliding_window", "tool_result_clearing", "combined")
TOKENS_OR_SHARE = "tokens (a whole number) or a share of the window (a decimal above 0, up to 1.0)"
_CALLABLE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z")
_STRATEGY_WORDS = "summarize, sliding_window, tool_result_clearing, combined or package.module:callable"
_STORE_WORDS = (
    "memory://, sqlite:///file.db, redis://host:port/db, redis+sentinel://host:port,host:port/master-name/db "
    "or redis+cluster://host:port,host:port; with TLS rediss for redis"
)
_ARCHIVE_WORDS = "file:///directory, s3://bucket/prefix or package.module:callable"

_WholeNumber = Annotated[int, BeforeValidator(_no_bool)]
Count = Annotated[_WholeNumber, Field(ge=0), Kind("a whole number, 0 or more")]
Positive = Annotated[_WholeNumber, Field(ge=1), Kind("a whole number, 1 or more")]
Port = Annotated[_WholeNumber, Field(ge=1, le=65535), Kind("a port number, 1 to 65535")]
Seconds = Annotated[
    float, BeforeValidator(_no_bool), Field(gt=0, allow_inf_nan=False), Kind("a number of seconds above 0")
]
Share = Annotated[float, BeforeValidator(_no_bool), Field(ge=0, le=1), Kind("a share, 0 to 1")]

Threshold = Annotated[int | float, PlainValidator(_threshold), Kind(TOKENS_OR_SHARE)]
Gain = Annotated[int | float, PlainValidator(_gain), Kind(f"{TOKENS_OR_SHARE}, or 0")]

Text = Annotated[str, Field(min_length=1), Kind("text that is not empty")]
TextFile = Annotated[Path, AfterValidator(_text_file), Kind("the path of a text file")]
Name = Annotated[str, AfterValidator(_name), Kind("a name")]
Glob = Annotated[str, Field(min_length=1), Kind("a name or glob (`*`, `?`, `[a-z]`)")]
Secret = Annotated[SecretStr, AfterValidator(_secret), Kind("secret text")]
EncryptionKey = Annotated[SecretStr, AfterValidator(_encryption_key), Kind("a base64 key, or id:base64,id:base64")]
Strategy = Annotated[str, AfterValidator(_strategy), Kind(_STRATEGY_WORDS)]
HttpUrl = Annotated[str, AfterValidator(http_url), Kind("an http or https address")]
BaseUrl = Annotated[str, AfterValidator(_base_url), Kind("an http or https address without /v1")]
StoreUrl = Annotated[str, AfterValidator(_store_url), Kind(_STORE_WORDS), Masked(mask_url)]
ArchiveUrl = Annotated[str, AfterValidator(_archive_url), Kind(_ARCHIVE_WORDS), Masked(mask_url)]
Headers = Annotated[
    dict[str, str], AfterValidator(_headers), Kind("a mapping of header names to text"), Masked(mask_headers)
]
Formats = Annotated[tuple[Format, ...], AfterValidator(_distinct)]
Stages = Annotated[tuple[Stage, ...], AfterValidator(_distinct)]

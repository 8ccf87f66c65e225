"""The sections of the configuration, option by option. Policies have a file of their own; `sections` puts them together.

A section is a frozen pydantic model; the line under a field is its manual. Nothing here reads a file or the environment: the
values come from `load`, or straight from a test.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from app.settings.match import OPTIONS, globs
from app.settings.quirks import Quirk
from app.settings.values import (
    ArchiveUrl,
    BaseUrl,
    EncryptionKey,
    Formats,
    Glob,
    Headers,
    HttpUrl,
    Kind,
    Name,
    Port,
    Positive,
    Seconds,
    Secret,
    Share,
    StoreUrl,
    Text,
)

CREDENTIAL_HEADERS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")

Host = Annotated[Text, Field(pattern=r"^[^\s/]+$"), Kind("a host name or an IP address")]


class Listen(BaseModel):
    """Where clients reach compactd."""

    model_config = OPTIONS

    host: Host = "127.0.0.1"
    """The address to listen on. `127.0.0.1`: this machine only. `0.0.0.0`: every network."""

    port: Port = 8787
    """The port to listen on."""

    workers: Positive = 1
    """Worker processes. One serves one core."""

    public_url: HttpUrl | None = None
    """How clients reach compactd from outside, for archive addresses; a path behind the host is fine. `null`:
    `http://{host}:{port}`, with `localhost` as host where compactd listens on every network."""

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


class Admin(BaseModel):
    """The console, the admin API and the metrics."""

    model_config = OPTIONS

    token: Secret | None = None
    """What an administrator sends as `Authorization: Bearer …`. `null`: administration works from this machine only."""

    protect_metrics: bool = False
    """Ask for the token at `/metrics` too."""


class Client(BaseModel):
    """One client's key, and what it is good for."""

    model_config = OPTIONS

    key: Secret
    """The key that the client authenticates with, as those of `auth.keys`."""

    policy: Name | None = None
    """The policy of all its requests, whatever they match; asking for another one is refused. `null`: as for everybody."""

    upstreams: tuple[Name, ...] = ()
    """Names of the upstreams with an `api_key` that it may use. Empty: all."""


class Auth(BaseModel):
    """Who may use compactd when it adds a provider's key of its own."""

    model_config = OPTIONS

    keys: tuple[Secret, ...] = ()
    """The keys that clients authenticate with where an upstream has an `api_key`. Required then, unless `listen.host` is a
    loopback address."""

    clients: dict[Name, Client] = {}
    """The same with a name, and with a policy and upstreams of their own."""

    @property
    def required(self) -> bool:
        """Is there any key to ask for?"""
        return bool(self.keys or self.clients)


class Upstream(BaseModel):
    """A provider endpoint."""

    model_config = OPTIONS

    base_url: BaseUrl
    """The provider's address, up to and without `/v1`. It may carry a path: `https://api.fireworks.ai/inference`."""

    formats: Formats
    """The wire formats that it speaks. The first upstream of a format is that format's default."""

    models: tuple[Glob, ...] = ()
    """Globs of model names that belong here, for example `accounts/fireworks/*`. They win over the format's default."""

    api_key: Secret | None = None
    """The key that compactd sends in place of the client's. `null`: the client's own credentials go through."""

    headers: Headers = Field(default={}, repr=False)
    """Headers added to every request to this upstream, in place of the client's of the same name."""

    connect_timeout: Seconds | None = None
    """Seconds to wait for a connection. `null`: as in `limits`."""

    read_timeout: Seconds | None = None
    """Seconds to wait for the next byte of an answer. `null`: as in `limits`."""

    quirks: tuple[Quirk, ...] = ()
    """What is special about its models, for example `alternating_roles` or `token_ratio=1.3`; `stream_only` for ChatGPT's own upstream
    behind Codex; `-name` takes away what the built-in table says. The head of `app/models.json` explains them all."""

    @property
    def brings_credentials(self) -> bool:
        """Whether requests carry credentials of compactd's own, so that whoever may connect spends them."""
        return self.api_key is not None or not self.headers.keys().isdisjoint(CREDENTIAL_HEADERS)

    def claims(self, model: str) -> bool:
        """Whether a glob of `models` matches."""
        return self._claims(model)

    @cached_property
    def _claims(self) -> Callable[[str], bool]:
        return globs(self.models)


class Store(BaseModel):
    """Where checkpoints, sessions and archives are kept."""

    model_config = OPTIONS

    url: StoreUrl = Field(default="sqlite:///data/compactd.db", repr=False)
    """`sqlite:///relative.db` or `sqlite:////absolute.db` for one machine, `redis://[:password@]host:port/db`,
    `redis+sentinel://h:p,h:p/master-name/db` or `redis+cluster://h:p,h:p` for several, `memory://` for tests. With TLS `rediss://`,
    `rediss+sentinel://`, `rediss+cluster://`; `?ssl_ca_certs=/path/ca.pem` trusts an authority of your own."""

    timeout: Seconds = 0.25
    """Seconds to wait for the store. A slower store is done without, and requests still flow."""

    session_ttl: Positive = 604800
    """Seconds that a session's figures are remembered."""

    checkpoint_ttl: Positive = 604800
    """Seconds that a compaction is remembered. A conversation that goes on later is compacted anew."""

    archive_ttl: Positive = 2592000
    """Seconds that removed messages can be read back."""

    encryption_key: EncryptionKey | None = None
    """Encrypts what is stored (AES-GCM), also archives in a directory or bucket: 32 random bytes in base64, best from the environment
    (`${STORE_KEY}`). Several as `id:base64,id:base64`: the first one writes, all of them read. Lost, the stored data is lost too.
    `null`: stored as it is."""

    @property
    def secret(self) -> str:
        """The encryption keys, "" for none."""
        return self.encryption_key.get_secret_value() if self.encryption_key else ""


class Archive(BaseModel):
    """Where removed messages go."""

    model_config = OPTIONS

    url: ArchiveUrl | None = None
    """`null`: into the store. `file:///directory`, `s3://bucket/prefix`, or `package.module:callable` for code of yours. Files and objects
    are `{id}.json`, with `store.encryption_key` sealed as `{id}.json.sealed`."""

    access: Literal["link", "admin"] = "link"
    """`link`: whoever holds an archive's unguessable address can read it. `admin`: only with the admin token."""


class Model(BaseModel):
    """What compactd should know about a model, on top of its own table."""

    model_config = OPTIONS

    context_window: Positive | None = None
    """Tokens of input that the model accepts. `null`: what the built-in table says."""

    encoding: Literal["o200k_base", "cl100k_base"] | None = None
    """The tokeniser for local counts. `null`: what the built-in table says."""

    quirks: tuple[Quirk, ...] = ()
    """What is special about the model, for example `alternating_roles` or `token_ratio=1.3`, added to what the built-in table says;
    `-name` takes one away. The head of `app/models.json` explains them all."""


class Limits(BaseModel):
    """What one process will take on."""

    model_config = OPTIONS

    max_body_bytes: Positive = 67108864
    """Bytes. A longer request body is passed through without being looked at; so is one that would be longer than
    this once decompressed."""

    max_held_bytes: Positive = 1073741824
    """Bytes of request bodies that one worker holds at the same time; what comes compressed counts opened too. While there is no room,
    requests are passed through without being looked at, and those first that take longer than `request_seconds` to come."""

    max_header_bytes: Positive = 65536
    """Bytes of a request's line and headers together. More is refused."""

    request_seconds: Seconds = 60
    """Seconds that a client gets for a request's line and headers, and between two pieces of its body; ten times as long for taking the
    next 64 KiB of its answer. Then its connection is closed."""

    max_clients: Positive = 20000
    """Connections of clients that one worker holds. More are refused."""

    max_items: Positive = 100000
    """A conversation of more items is passed through without being looked at."""

    max_inflight: Positive = 10000
    """Requests that one worker forwards at the same time. More are refused."""

    max_connections: Positive = 1000
    """Connections to upstreams that one worker holds."""

    connect_timeout: Seconds = 10
    """Seconds to wait for a connection to an upstream."""

    read_timeout: Seconds = 600
    """Seconds to wait for the next byte of an upstream's answer. Long thinking without a stream needs minutes."""

    drain_seconds: Seconds = 30
    """Seconds that running requests get to finish when compactd is stopped."""


class Console(BaseModel):
    """The web page under `/compactd/`."""

    model_config = OPTIONS

    enabled: bool = True
    """Serve the page."""

    content: bool = True
    """Let administrators read messages there. `false`: figures only."""


class Log(BaseModel):
    """What is logged, never message content."""

    model_config = OPTIONS

    level: Literal["debug", "info", "warning", "error", "critical"] = "info"
    """The least serious line to log. A request's line is `info`, and `warning` where compactd or the provider failed."""

    format: Literal["auto", "json", "console"] = "auto"
    """`auto`: readable on a terminal, JSON elsewhere."""

    sample: Share = 1.0
    """The share of requests that passed as a matter of course which get a line; all others, and all that failed, always do."""


class Traces(BaseModel):
    """OpenTelemetry traces, by OTLP over HTTP."""

    model_config = OPTIONS

    enabled: bool = False
    """Make traces, and pass them on to providers. They hold figures and names, never content. Needs the extra `otel`
    (`pip install 'compactd[otel]'`); a change takes a restart."""

    endpoint: HttpUrl | None = None
    """The collector, without `/v1/traces`. `null`: as `OTEL_EXPORTER_OTLP_ENDPOINT` says, else `http://localhost:4318`. Other
    `OTEL_*` variables count too: headers, sampler, propagators, resource attributes, batch sizes."""

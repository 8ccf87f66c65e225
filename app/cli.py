"""The command line. Each command is a thin door: settings in, the same code as the running proxy behind it, a plain answer out."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from app import __version__
from app.errors import ConfigInvalid, StoreFailed, Unreadable
from app.own.loading import install, missing
from app.ports import Store
from app.settings import Need, Settings, describe, load

DEFAULT_FILE = Path("config/compactd.yaml")
cli = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__.partition(".")[0] + "."
)
archives = typer.Typer(no_args_is_help=True, help="Read what compactions removed.")
cli.add_typer(archives, name="archive")

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Configuration file. Default: config/compactd.yaml, if it is there."),
]
File = Annotated[Path | None, typer.Argument(help="The same as --config.")]


def _one(file: Path | None, config: Path | None) -> Path | None:
    if file is not None and config is not None:
        _fail([f"Two configuration files, {file} and {config}: name one."])
    return file or config


def _file(config: Path | None) -> str | None:
    if config is not None:
        return str(config)
    named = os.environ.get("COMPACTD_CONFIG")
    return named or (str(DEFAULT_FILE) if DEFAULT_FILE.exists() else None)


def _fail(lines: list[str]) -> NoReturn:
    for line in lines:
        typer.echo(line, err=True)
    raise typer.Exit(1)


def _settings(config: Path | None, needs: Iterable[Need] = ()) -> Settings:
    file = _file(config)
    try:
        return load(Path(file) if file else None, _environment(), needs=needs)
    except ConfigInvalid as invalid:
        _fail(invalid.faults)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "COMPACTD_CONFIG"}


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"compactd {__version__}")
        raise typer.Exit


@cli.callback()
def _compactd(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Name and version.")
    ] = False,
) -> None: ...


@cli.command()
def serve(
    file: File = None,
    config: Config = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes.")] = None,
) -> None:
    """Run the proxy."""
    from app.edge.server import serve as run

    given: dict[str, object] = {"listen.host": host, "listen.port": port, "listen.workers": workers}
    overrides = {name: value for name, value in given.items() if value is not None}
    found = _file(_one(file, config))
    try:
        run(found, overrides, listening=lambda settings: _greet(settings, found))
    except ConfigInvalid as invalid:
        _fail(invalid.faults)
    except OSError as fault:
        _fail([f"compactd can't start: {fault.strerror or fault}"])


def _greet(settings: Settings, file: str | None) -> None:
    """Where to point base_url, on standard error, where logs go too."""
    if not sys.stderr.isatty() and settings.log.format != "console":
        return
    base = settings.public_base
    typer.echo(
        f"compactd {__version__} ({file or 'built-in defaults'}), store {settings.store.url.partition('://')[0]}",
        err=True,
    )
    typer.echo(f"  OpenAI SDKs      base_url={base}/v1", err=True)
    typer.echo(f"  Anthropic SDKs   base_url={base}", err=True)
    typer.echo(f"  Google SDKs      base_url={base}", err=True)
    typer.echo(f"  metrics          {base}/metrics", err=True)
    if settings.console.enabled:
        typer.echo(f"  console          {base}/compactd/", err=True)


@cli.command()
def check(file: File = None, config: Config = None) -> None:
    """Check the configuration: every fault at once, or what it comes to."""
    from app.edge.outline import outline
    from app.edge.server import NEEDS

    config = _one(file, config)
    settings = _settings(config, NEEDS)
    typer.echo(f"{_file(config) or 'built-in defaults'}: sound")
    for line in outline(settings):
        typer.echo(f"  {line}")


@cli.command()
def preview(
    file: Annotated[Path, typer.Argument(help="A saved request body (JSON); - for standard input.")],
    config: Config = None,
    path: Annotated[
        str,
        typer.Option(help="The request's path; it tells the format, and Gemini's model. Default: by the body's keys."),
    ] = "",
    policy: Annotated[str | None, typer.Option(help="A policy by name instead of the one that matches.")] = None,
    body: Annotated[
        bool, typer.Option("--body", help="Print the body that would be forwarded and nothing else.")
    ] = False,
) -> None:
    """Show what would be forwarded for a saved request, and why. Offline: nothing is sent or stored."""
    from app.edge.preview import Preview
    from app.edge.preview import preview as told

    request = Preview(path=path, body=_read(file), policy=policy)
    result = asyncio.run(told(_settings(config, [missing]), request))
    if "error" in result:
        _fail([result["error"]])
    forwarded = result.pop("body")
    if body:
        typer.echo(forwarded)
        return
    for key, value in result.items():
        for line in value if isinstance(value, list) else [value]:
            if line != "":
                typer.echo(f"{key + ':':<18}{line}")


@cli.command()
def replay(
    file: Annotated[
        Path, typer.Argument(help="A saved request body (JSON), or one a line (JSON lines); - for standard input.")
    ],
    config: Config = None,
    path: Annotated[str, typer.Option(help="The requests' path, as for preview.")] = "",
    policy: Annotated[str | None, typer.Option(help="A policy by name instead of the one that matches.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Play a saved conversation again, request by request, and show what a policy makes of it. Offline: nothing is sent or stored.

    One body stands for all the requests that led to it. Summaries that a model would write can't be made offline: the policy's
    `summary_fallback` stands for them.
    """
    from app.edge.preview import guessed_path
    from app.edge.replay import replay_bodies, table

    text = _read(file)
    try:
        json.loads(text)
        bodies = [text]
    except ValueError:
        bodies = [line for line in text.splitlines() if line.strip()]
    if not bodies:
        _fail([f"{file} is empty."])
    given = [(path or guessed_path(body), body.encode("utf-8", "surrogatepass")) for body in bodies]
    rows, total = asyncio.run(replay_bodies(_settings(config, [missing]), given, policy))
    if not rows:
        _fail([total.get("not_looked_at", f"Nothing in {file} asks the model for anything.")])
    if as_json:
        for row in (*rows, total):
            typer.echo(json.dumps(row))
    else:
        for line in table(rows, total):
            typer.echo(line)


def _read(file: Path) -> str:
    try:
        raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return raw.decode()
    except (OSError, UnicodeDecodeError) as fault:
        _fail([f"{file} can't be read: {getattr(fault, 'strerror', None) or 'not UTF-8'}"])


@archives.command("list")
def archive_list(
    config: Config = None,
    session: Annotated[str, typer.Option(help="Of this session only.")] = "",
    limit: Annotated[int, typer.Option(help="How many, newest first.")] = 50,
) -> None:
    """Archives in the configured store, newest first."""
    from app.archive import stamp

    async def read(store: Any) -> Any:
        return (await store.archives(session, "", limit))[0]

    found = _in_store(config, read)
    if not found:
        typer.echo(f"No archives in {describe(_settings(config))['store']['url']}.", err=True)
    for archive in found:
        typer.echo(f"{stamp(archive.created)}  {archive.id}  session {archive.session}")


@archives.command("show")
def archive_show(
    archive_id: Annotated[str, typer.Argument(help="An archive's id, or its address.")], config: Config = None
) -> None:
    """One archive as JSON, with everything that was removed before it."""
    from app.archive import full_document, id_in
    from app.edge.archives import open_archives

    settings = _settings(config)

    async def read(store: Any) -> Any:
        archives = open_archives(settings.archive.url, store, settings.store.secret)
        archive = await archives.get_archive(id_in(archive_id) or archive_id)
        return await full_document(archives, archive) if archive else None

    document = _in_store(config, read)
    if document is None:
        place = settings.archive.url or describe(settings)["store"]["url"]
        _fail([f"There is no archive {archive_id!r} in {place} (any more); --config says where else to look."])
    typer.echo(json.dumps(document, ensure_ascii=False, indent=2))


def _in_store(config: Path | None, work: Any) -> Any:
    async def run() -> Any:
        async with _opened(_settings(config)) as store:
            return await work(store)

    try:
        return asyncio.run(run())
    except ConfigInvalid as invalid:
        _fail(invalid.faults)
    except Unreadable as fault:
        _fail([f"The archive {fault.why}."])
    except StoreFailed as fault:
        _fail([f"The store does not answer: {fault}"])


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Store]:
    from app.edge.stores import store_of

    store = store_of(settings.store, timeout=10)
    try:
        yield store
    finally:
        await store.close()


@cli.command()
def mcp(config: Config = None) -> None:
    """Serve archives to an agent over the Model Context Protocol, on standard input and output."""
    try:
        from app.edge.mcp import server
    except ModuleNotFoundError as missing:
        if missing.name != "mcp":
            raise
        _fail(["`compactd mcp` needs the package `mcp`; " + install("mcp")])
    from app.edge.archives import open_archives

    settings = _settings(config)

    @asynccontextmanager
    async def opening() -> AsyncIterator[Any]:
        async with _opened(settings) as store:
            yield open_archives(settings.archive.url, store, settings.store.secret)

    server(opening).run()


@cli.command()
def version() -> None:
    """The version."""
    typer.echo(__version__)


def main() -> None:
    cli()

"""compactd's own endpoints: health, metrics, archives, the admin API. FastAPI; nothing here is on the hot path.

Who may read what is decided in front of it, by `app.edge.access`. With `console.content: false` nobody is shown what conversations say:
no archive, no address of one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse

from app import __version__
from app.archive import address_of, full_document, opened_by
from app.edge.access import Access
from app.edge.console import console
from app.edge.preview import Preview, preview
from app.errors import StoreFailed, Unreadable
from app.records import Archive, Compaction, Session
from app.settings import describe

if TYPE_CHECKING:
    from app.main import App

Cursor = Annotated[str, Query(max_length=400)]
T = TypeVar("T")
Limit = Annotated[int, Query(ge=1, le=200)]
READERS = 2
"""Archives that are put together at the same time: each may be as large as a body."""
HIDDEN = "`console.content` is false: messages are shown to nobody here."
_NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""FastAPI's own, which the environment could turn on, and which records what was raised; traces are `app.edge.otel`'s."""


def operations(app: App) -> Access:
    """ASGI, with its guard in front."""
    api = FastAPI(
        title="compactd", version=__version__, docs_url=None, redoc_url=None, openapi_url="/compactd/api/openapi.json",
        description="Health, metrics, archives and the record of compactions.", redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
    )  # fmt: skip
    reading = asyncio.Semaphore(READERS)
    api.include_router(console(lambda: app.settings))

    @api.exception_handler(StoreFailed)
    async def _store_failed(request: Request, fault: StoreFailed) -> JSONResponse:  # noqa: ARG001
        return JSONResponse({"detail": "The store does not answer."}, 503)

    @api.exception_handler(Unreadable)
    async def _unreadable(request: Request, fault: Unreadable) -> JSONResponse:  # noqa: ARG001
        return JSONResponse(
            {"detail": "This archive is sealed with a key that is not here, or damaged: the log says which."}, 503
        )

    @api.get("/livez", tags=["health"])
    @api.get("/healthz", tags=["health"], include_in_schema=False)
    async def livez() -> dict[str, str]:
        """This process runs. Depends on nothing."""
        return {"status": "ok", "version": __version__}

    @api.get("/readyz", tags=["health"])
    async def readyz() -> JSONResponse:
        """Whether to send requests here: 503 while draining; a store that is down is told, requests flow all the same."""
        if app.relay.draining:
            return JSONResponse({"status": "draining"}, 503)
        try:
            await app.store.ping()
        except StoreFailed:
            return JSONResponse({"status": "degraded", "store": "down"})
        return JSONResponse({"status": "ok"})

    @api.get("/metrics", tags=["health"])
    def metrics() -> Response:
        """Prometheus exposition. Open, unless `admin.protect_metrics` is set."""
        app.measure()
        return Response(app.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @api.get("/compactd/archives/{archive_id}/{capability}", tags=["archives"])
    async def read_archive(archive_id: str, capability: str) -> JSONResponse:
        """The whole conversation up to this compaction, by its address."""
        async with reading:
            archive = await opened_by(app.archives, archive_id, capability)
            if archive is None:
                raise HTTPException(404, "There is no archive at this address (any more).")
            return JSONResponse(await full_document(app.archives, archive))

    @api.get("/compactd/api/archives", tags=["archives"])
    async def archives(session: str = "", cursor: Cursor = "", limit: Limit = 50) -> dict[str, Any]:
        found, following = await app.store.archives(session, cursor, limit)
        return {"archives": [_head(app, archive) for archive in found], "cursor": following}

    @api.get("/compactd/api/archives/{archive_id}", tags=["archives"])
    async def archive(archive_id: str) -> dict[str, Any]:
        """One archive with everything that was removed before it."""
        if not app.settings.console.content:
            raise HTTPException(403, HIDDEN)
        return await full_document(app.archives, _existing(await app.archives.get_archive(archive_id), "archive"))

    @api.get("/compactd/api/sessions", tags=["sessions"])
    async def sessions(cursor: Cursor = "", limit: Limit = 50) -> dict[str, Any]:
        found, following = await app.store.sessions(cursor, limit)
        return {"sessions": [_public(app, session) for session in found], "cursor": following}

    @api.get("/compactd/api/sessions/{session}", tags=["sessions"])
    async def session(session: str) -> dict[str, Any]:
        return _public(app, _existing(await app.store.get_session(session), "session"))

    @api.get("/compactd/api/compactions", tags=["compactions"])
    async def compactions(session: str = "", cursor: Cursor = "", limit: Limit = 50) -> dict[str, Any]:
        found, following = await app.store.compactions(session, cursor, limit)
        return {"compactions": [_public(app, compaction) for compaction in found], "cursor": following}

    @api.get("/compactd/api/compactions/{compaction_id}", tags=["compactions"])
    async def compaction(compaction_id: str) -> dict[str, Any]:
        return _public(app, _existing(await app.store.get_compaction(compaction_id), "compaction"))

    @api.get("/compactd/api/config", tags=["config"])
    async def config() -> dict[str, Any]:
        """The settings in force, secrets masked."""
        return describe(app.settings)

    @api.post("/compactd/api/preview", tags=["config"])
    async def previewed(request: Preview) -> dict[str, Any]:
        """What would be forwarded for a request body, and why. Nothing is sent or stored."""
        return await preview(app.settings, request)

    return Access(api, lambda: app.settings)


def _existing(found: T | None, kind: str) -> T:
    if found is None:
        raise HTTPException(404, f"There is no such {kind} (any more).")
    return found


def _head(app: App, archive: Archive) -> dict[str, Any]:
    shown = {"id": archive.id, "session": archive.session, "created": archive.created, "previous": archive.previous}
    if app.settings.console.content:
        shown["address"] = address_of(app.settings.public_base, archive.id, archive.capability)
    return shown


def _public(app: App, record: Session | Compaction) -> dict[str, Any]:
    """A record for an administrator: without the tenant's hash and the marks that mean nothing outside."""
    hidden = {"tenant", "usages"} | (set() if app.settings.console.content else {"last_archive", "archive"})
    return {key: value for key, value in msgspec.to_builtins(record).items() if key not in hidden}

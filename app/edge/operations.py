"""compactd's own endpoints: health, metrics, archives, the admin API. FastAPI; nothing here is on the hot path.

Who may read what: health is open; an archive's address is its own key (`archive.access: link`); everything else needs the admin token, or
no token at all while compactd is bound to loopback and the request names a loopback host (so that no web page can reach it by DNS
rebinding).
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse

from app import __version__
from app.archive import address_of, whole
from app.edge.headers import without_bearer
from app.edge.preview import Preview, preview
from app.errors import StoreFailed
from app.ports import Archive
from app.settings import describe

if TYPE_CHECKING:
    from app.main import App

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
Cursor = Annotated[str, Query(max_length=400)]
Limit = Annotated[int, Query(ge=1, le=200)]
_CLOSED = {"cache-control": "no-store", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


def operations(app: App) -> FastAPI:
    api = FastAPI(
        title="compactd", version=__version__, docs_url=None, redoc_url=None, openapi_url="/compactd/api/openapi.json",
        description="Health, metrics, archives and the record of compactions.",
    )  # fmt: skip

    def admin(request: Request) -> None:
        """Raises 401 without the token, 403 for a request that did not come to a loopback name."""
        settings = app.settings
        if settings.admin.token is not None:
            given = without_bearer(request.headers.get("authorization", ""))
            if not hmac.compare_digest(given.encode(), settings.admin.token.get_secret_value().encode()):
                raise HTTPException(
                    401, "Send the admin token as `Authorization: Bearer …`.", {"www-authenticate": "Bearer"}
                )
        elif not settings.listen.loopback:
            raise HTTPException(403, "Set `admin.token` to use this from other machines.")
        elif (
            request.headers.get("host", "").rsplit(":", 1)[0] not in LOOPBACK and request.headers.get("host") != "[::1]"
        ):
            raise HTTPException(403, "Without `admin.token` this answers under a loopback name only.")

    admins = [Depends(admin)]

    @api.exception_handler(StoreFailed)
    async def _store_failed(request: Request, fault: StoreFailed) -> JSONResponse:  # noqa: ARG001
        return JSONResponse({"detail": "The store does not answer."}, 503)

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
        if not app.store.healthy:
            return JSONResponse({"status": "degraded", "store": "down"})
        try:
            await app.store.ping()
        except StoreFailed:
            return JSONResponse({"status": "degraded", "store": "down"})
        return JSONResponse({"status": "ok"})

    @api.get("/metrics", tags=["health"])
    def metrics(request: Request) -> Response:
        """Prometheus exposition. Open, unless `admin.protect_metrics` is set."""
        if app.settings.admin.protect_metrics:
            admin(request)
        return Response(app.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @api.get("/compactd/archives/{archive_id}/{capability}", tags=["archives"])
    async def read_archive(archive_id: str, capability: str, request: Request) -> JSONResponse:
        """The whole conversation up to this compaction, by its address."""
        if app.settings.archive.access == "admin":
            admin(request)
        archive = await app.archives.get_archive(archive_id)
        if archive is None or not hmac.compare_digest(archive.capability.encode(), capability.encode()):
            raise HTTPException(404, "There is no archive at this address (any more).")
        return JSONResponse(await whole(app.archives, archive), headers=_CLOSED)

    @api.get("/compactd/api/archives", tags=["archives"], dependencies=admins)
    async def archives(session: str = "", cursor: Cursor = "", limit: Limit = 50) -> dict[str, Any]:
        found, following = await app.store.archives(session, cursor, limit)
        return {"archives": [_head(app, archive) for archive in found], "cursor": following}

    @api.get("/compactd/api/archives/{archive_id}", tags=["archives"], dependencies=admins)
    async def archive(archive_id: str) -> dict[str, Any]:
        """One archive with everything that was removed before it."""
        found = await app.archives.get_archive(archive_id)
        if found is None:
            raise HTTPException(404, "There is no such archive (any more).")
        return await whole(app.archives, found)

    @api.get("/compactd/api/sessions", tags=["sessions"], dependencies=admins)
    async def sessions(cursor: Cursor = "", limit: Limit = 50) -> dict[str, Any]:
        found, following = await app.store.sessions(cursor, limit)
        return {"sessions": [_public(session) for session in found], "cursor": following}

    @api.get("/compactd/api/sessions/{session}", tags=["sessions"], dependencies=admins)
    async def session(session: str) -> dict[str, Any]:
        found = await app.store.get_session(session)
        if found is None:
            raise HTTPException(404, "There is no such session (any more).")
        return _public(found)

    @api.get("/compactd/api/compactions", tags=["compactions"], dependencies=admins)
    async def compactions(session: str = "", cursor: Cursor = "", limit: Limit = 50) -> dict[str, Any]:
        found, following = await app.store.compactions(session, cursor, limit)
        return {"compactions": [_public(compaction) for compaction in found], "cursor": following}

    @api.get("/compactd/api/compactions/{compaction_id}", tags=["compactions"], dependencies=admins)
    async def compaction(compaction_id: str) -> dict[str, Any]:
        found = await app.store.get_compaction(compaction_id)
        if found is None:
            raise HTTPException(404, "There is no such compaction (any more).")
        return _public(found)

    @api.get("/compactd/api/config", tags=["config"], dependencies=admins)
    async def config() -> dict[str, Any]:
        """The settings in force, secrets masked."""
        return describe(app.settings)

    @api.post("/compactd/api/preview", tags=["config"], dependencies=admins)
    async def previewed(request: Preview) -> dict[str, Any]:
        """What would be forwarded for a request body, and why. Nothing is sent or stored."""
        return await preview(app.settings, request)

    return api


def _head(app: App, archive: Archive) -> dict[str, Any]:
    address = address_of(app.settings.public_base, archive.id, archive.capability)
    return {
        "id": archive.id, "session": archive.session, "created": archive.created, "previous": archive.previous, "address": address,
    }  # fmt: skip


def _public(record: Any) -> dict[str, Any]:
    """A record for an administrator: without the tenant's hash and the marks that mean nothing outside."""
    return {key: value for key, value in msgspec.to_builtins(record).items() if key not in ("tenant", "usages")}

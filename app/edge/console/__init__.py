"""The console: one static page that asks the admin API, so that it can show nothing that its reader could not ask for.

The page itself holds no data. With an admin token set it is answered with 401 and still shown, because a browser can't send the token with
its first request: the page asks for it. What conversations say is hostile: the script puts it on the page as text only, and the policy of
the page allows no script, style or address but its own files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fastapi import APIRouter, Depends, HTTPException, Request, Response

from app.edge.access import admin_denial
from app.edge.headers import Headers
from app.settings import Settings

_HERE = Path(__file__).parent
PAGE = (_HERE / "page.html").read_bytes()
ASSETS = {
    "console.js": ((_HERE / "console.js").read_bytes(), "text/javascript; charset=utf-8"),
    "console.css": ((_HERE / "console.css").read_bytes(), "text/css; charset=utf-8"),
    "icon.svg": ((_HERE / "icon.svg").read_bytes(), "image/svg+xml"),
}


def console(settings: Callable[[], Settings]) -> APIRouter:
    """Its routes; 404 while `console.enabled` is false."""

    def enabled() -> None:
        if not settings().console.enabled:
            raise HTTPException(404)

    router = APIRouter(include_in_schema=False, dependencies=[Depends(enabled)])

    @router.get("/compactd")
    async def without_slash() -> Response:
        return Response(status_code=308, headers={"location": "/compactd/"})

    @router.get("/compactd/")
    async def page(request: Request) -> Response:
        denied = admin_denial(settings(), Headers(request.scope["headers"]))
        if denied is not None and denied.status == 403:
            return Response(denied.detail, 403, media_type="text/plain; charset=utf-8")
        headers = {name.decode(): value.decode() for name, value in denied.headers} if denied else {}
        return Response(PAGE, denied.status if denied else 200, headers, media_type="text/html; charset=utf-8")

    @router.get("/compactd/console/{name}")
    async def asset(name: str) -> Response:
        if name not in ASSETS:
            return Response(status_code=404)
        content, kind = ASSETS[name]
        return Response(content, media_type=kind)

    return router

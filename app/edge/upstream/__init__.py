"""The way out: everything that compactd says to a provider goes through `Upstream`.

An HTTP/1.1 client that speaks httpx's types and uses nothing else of httpx. One request is one `Exchange` on one
`Connection`; the `Pool` keeps idle connections per `Route`; `dial` makes new ones. Bytes go out as they are given and come
in as they arrive: nothing is decoded, followed or gathered up. A request costs no task and no wait_for: the event loop
calls the connection, the connection calls the exchange, and one lazy timer watches over it.
"""

from __future__ import annotations

from app.edge.upstream.transport import DEFAULT_TIMEOUT, Upstream

__all__ = ["DEFAULT_TIMEOUT", "Upstream"]

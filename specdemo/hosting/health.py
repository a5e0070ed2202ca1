"""``/healthz`` for whoever watches the process, ``/metrics`` for Prometheus."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from .backend import HostedBackend
from .metrics import TYPE

STATUS = {"ready": 200, "loading": 503, "broken": 500}


def routes(backend: HostedBackend) -> list[BaseRoute]:
    """200 once runs are possible, 503 while the model loads, 500 when only a restart helps."""

    async def healthz(_: Request) -> Response:
        state = backend.health()
        headers = {"Cache-Control": "no-store", **({"Retry-After": "5"} if state == "loading" else {})}
        return JSONResponse({"state": state}, STATUS[state], headers=headers)

    async def metrics(_: Request) -> Response:
        return Response(backend.metrics.text(), media_type=TYPE)

    found: list[BaseRoute] = [Route("/healthz", healthz)]
    return found + ([Route("/metrics", metrics)] if backend.config.metrics else [])

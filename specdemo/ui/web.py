"""What the page loads besides Gradio: scripts, style, words, recordings, the state of the model.

Plain Starlette routes, given to Gradio's app at launch; nothing comes from another host.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import plotly
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..export_html import template
from .text import TEXTS

ASSETS = Path(__file__).resolve().parents[2] / "assets"
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
PREFIX = "/specdemo"

# Relative addresses: the page also works below a path of a proxy.
HEAD = """
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="specdemo/css/icon.svg">
<link rel="stylesheet" href="specdemo/css/colours.css">
<link rel="stylesheet" href="specdemo/css/gradio.css">
<link rel="stylesheet" href="specdemo/css/page.css">
<link rel="stylesheet" href="specdemo/css/views.css">
"""
ONLY_EXPORTED = {"player_page.js", "smallchart.js"}


def scripts() -> str:
    """The page's script, with every module and the first recording named: the browser asks for all at
    once. It must come before Gradio's own: module scripts run in the order in which they stand."""
    names = sorted(path.name for path in (ASSETS / "js").glob("*.js"))
    wanted = ["text.js", *(f"js/{name}" for name in names if name not in ONLY_EXPORTED)]
    links = [f'<link rel="modulepreload" href="specdemo/{name}">' for name in wanted]
    links += [
        f'<link rel="preload" href="specdemo/recordings/{name}" as="fetch" crossorigin>'
        for name in ("index.json", "repeat.jsonl", "repeat.plain.jsonl")
    ]
    return "\n".join(['<script src="specdemo/js/main.js" type="module"></script>', *links])


class HeadFirst:
    """Middleware: puts our part of the head into the page's HTML itself, scripts first and style last.
    As Gradio's own ``head`` it would be added by script once Gradio has started, a second later."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._first, self._last = app, scripts().encode(), HEAD.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        held: list[Message] = []

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                kind = dict(message["headers"]).get(b"content-type", b"")
                if not kind.startswith(b"text/html"):
                    await send(message)
                    return
                held.append(message)
            elif not held:
                await send(message)
            else:
                held.append(message)
                if not message.get("more_body"):
                    await self._answer(held, send)

        await self._app(scope, receive, watched)

    async def _answer(self, held: list[Message], send: Send) -> None:
        start, *parts = held
        html = b"".join(part.get("body", b"") for part in parts)
        if b"<gradio-app" in html:
            html = html.replace(b"<head>", b"<head>\n" + self._first, 1)
            html = html.replace(b"</head>", self._last + b"</head>", 1)
        headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
        size = (b"content-length", str(len(html)).encode())
        await send({**start, "headers": [*headers, size]})
        await send({"type": "http.response.body", "body": html})


def words_module() -> str:
    """The sentences as a script module: ``export const TEXT = {...}``."""
    return f"export const TEXT = {json.dumps(TEXTS)};\n"


def routes(status: Callable[[], Mapping[str, Any]]) -> list[BaseRoute]:
    """The routes below ``/specdemo``; ``status`` gives the state of the model as plain values."""

    async def words(_: Request) -> Response:
        return Response(words_module(), media_type="text/javascript")

    async def state(_: Request) -> Response:
        return JSONResponse(dict(status()), headers={"Cache-Control": "no-store"})

    async def chart(_: Request) -> Response:
        return FileResponse(
            PLOTLY, media_type="text/javascript", headers={"Cache-Control": "max-age=86400"}
        )

    async def export(_: Request) -> Response:
        return HTMLResponse(template())

    return [
        Route(f"{PREFIX}/text.js", words),
        Route(f"{PREFIX}/status.json", state),
        Route(f"{PREFIX}/plotly.min.js", chart),
        Route(f"{PREFIX}/export-template.html", export),
        Mount(f"{PREFIX}/js", StaticFiles(directory=ASSETS / "js")),
        Mount(f"{PREFIX}/css", StaticFiles(directory=ASSETS / "css")),
        Mount(f"{PREFIX}/recordings", StaticFiles(directory=ASSETS / "recordings")),
    ]

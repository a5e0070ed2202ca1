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
<script src="specdemo/plotly.min.js" defer></script>
<script src="specdemo/js/main.js" type="module"></script>
"""


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

"""One self-contained HTML page of a run: data, style, words and player in one file, no request.

The page is safe to keep and to show: the data lies in a script element of type ``application/json``
in which no ``<`` occurs, a policy in the page forbids every connection, and the player puts text in
as text only. ``assets/js/export.js`` fills the same template in the browser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .events import Event, to_json

ASSETS = Path(__file__).resolve().parent.parent / "assets"
DATA_MARK = "__SPECDEMO_DATA__"
# In the order in which they need each other; player_page.js starts the page.
SCRIPTS = (
    "dom", "words", "run", "store", "player", "stream", "inspector", "status", "server", "controls",
    "svgplot", "smallchart", "live", "alternatives", "tree", "round", "player_page",
)  # fmt: skip
STYLES = ("colours", "page", "views", "exported")
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=class |function |async function |const )", re.MULTILINE)


def script() -> str:
    """The player's modules as one script: imports dropped, as all lie in one scope."""
    parts = [(ASSETS / "js" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", part)) for part in parts)


def embed(value: Any) -> str:
    """JSON that may stand inside a script element: ``<`` would be able to end it."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def template() -> str:
    """The page with ``DATA_MARK`` where its data belongs."""
    from .ui.text import TEXTS

    style = "\n".join((ASSETS / "css" / f"{name}.css").read_text(encoding="utf-8") for name in STYLES)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>specdemo</title>\n<style>\n{style}\n</style>\n</head>\n<body>\n"
        f'<script type="application/json" id="specdemo-data">{DATA_MARK}</script>\n'
        f"<script>\n{{\n{script()}\nstartExportedPage({embed(TEXTS)});\n}}\n</script>\n</body>\n</html>\n"
    )


def page(runs: Mapping[str, Iterable[Event]], lang: str = "en") -> str:
    """The finished page. ``runs``: events by slot, ``main`` and, where measured, ``plain``."""
    lines = {slot: [to_json(event) for event in events] for slot, events in runs.items()}
    before, after = template().split(DATA_MARK)
    return before + embed({"lang": lang, "runs": lines}) + after

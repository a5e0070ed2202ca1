"""What a visitor can send: page events by HTTP, and the public endpoint without HTTP in between."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

from hosted import Hosted

from specdemo.hosting import api
from specdemo.ui.views.live import Sessions


def join(page: Hosted, index: int, data: list[Any], session: str = "visitor") -> dict[str, Any]:
    """Send a page event by HTTP, as the browser does; its last message (none when refused at once)."""
    body = json.dumps({"data": data, "fn_index": index, "session_hash": session}).encode()
    headers = {"content-type": "application/json"}
    answer = page.http.post("/gradio_api/queue/join", content=body, headers=headers)
    if answer.status_code == 400:
        assert answer.json()["detail"].endswith(".")
        return {}
    assert answer.status_code == 200, answer.text
    with page.http.stream("GET", f"/gradio_api/queue/data?session_hash={session}") as stream:
        lines = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]
    return next(m for m in reversed(lines) if m["msg"] == "process_completed")


def events(page: Hosted) -> list[dict[str, Any]]:
    return page.http.get("/config").json()["dependencies"]


def states(page: Hosted, values: dict[str, Any], drafter_settings: Any) -> list[dict[str, Any]]:
    """The endpoint's answers, without HTTP in between."""
    request = SimpleNamespace(session_hash="fuzz", client=None, headers={}, username=None)

    async def collect() -> list[dict[str, Any]]:
        answers = api._states(page.backend, Sessions(), values, drafter_settings, request)
        return [state async for state in answers]

    return asyncio.run(collect())

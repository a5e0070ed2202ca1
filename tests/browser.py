"""The page in a real Chromium: one app on the embedded model, and pages that may do nothing wrong.

A page fixture notes every request to another host, every console error and every page error, and
its teardown asserts that there were none.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import axe_playwright_python
import pytest
from install_browser import system_browser
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

from specdemo.ui.backend import Backend, default_loader
from specdemo.ui.page import launch

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # No other host can be reached, even if the page tried; that it does not try is asserted.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
PATIENCE = 60_000  # milliseconds: the machines that run this may be slow and busy
LEFT = ("AbortError: signal is aborted without reason", "Unexpected error Connection errored out.")
expect.set_options(timeout=PATIENCE / 2)


@dataclass
class Site:
    """A served page. ``url`` ends with a slash."""

    url: str
    backend: Backend

    @property
    def idle(self) -> bool:
        return not self.backend.worker.busy


def serve(backend: Backend) -> tuple[Site, Any]:
    """A page on a port of its own: a browser would keep its connections to one that was there before."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    demo = launch(backend, server_name="127.0.0.1", server_port=port, prevent_thread_lock=True)
    return Site(demo.local_url, backend), demo


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """The page on the embedded model, loaded."""
    backend = Backend(default_loader())
    site, demo = serve(backend)
    backend.start().wait()
    assert backend.state == "live", backend.message
    yield site
    demo.close(verbose=False)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The system's Chromium where there is one, else the one that Playwright installed."""
    path = system_browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Watch:
    """What pages did that they must not do."""

    faults: list[str] = field(default_factory=list)

    def on(self, page: Page, left: bool = False) -> None:
        """``left``: the page will be left in mid-run, of which Gradio's own script complains."""
        forgiven = LEFT if left else ()
        page.on("request", self._request)
        page.on("console", lambda m: self._said(m.text, forgiven) if m.type == "error" else None)
        page.on("pageerror", lambda error: self.faults.append(f"page error: {error}"))
        page.on("dialog", lambda dialog: (self.faults.append("a dialog opened"), dialog.dismiss()))

    def _said(self, text: str, forgiven: tuple[str, ...]) -> None:
        if not text.startswith(forgiven):
            self.faults.append(text)

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        remote = parts.scheme in ("http", "https", "ws", "wss")
        if remote and parts.hostname not in ("127.0.0.1", "localhost"):
            self.faults.append(f"request to another host: {request.url[:200]}")


Open = Callable[..., Page]
Contexts = dict[tuple[Any, ...], BrowserContext]


@pytest.fixture(scope="session")
def contexts(chromium: Browser) -> Iterator[Contexts]:
    """Browser contexts by their options: pages that share one load the scripts from its cache."""
    made: Contexts = {}
    yield made
    for context in made.values():
        context.close()


@pytest.fixture
def open_page(chromium: Browser, contexts: Contexts) -> Iterator[Open]:
    """Opens pages: ``open_page(url, width=, height=, locale=, dark=, wait=, left=)``; all watched."""
    pages: list[Page] = []
    watch = Watch()

    def opener(
        url: str,
        width: int = 1200,
        height: int = 900,
        locale: str = "en-US",
        dark: bool = False,
        wait: bool = True,
        left: bool = False,
    ) -> Page:
        key = (width, height, locale, dark)
        if key not in contexts:
            contexts[key] = chromium.new_context(
                viewport={"width": width, "height": height},
                locale=locale,
                color_scheme="dark" if dark else "light",
                accept_downloads=True,
            )
            contexts[key].set_default_timeout(PATIENCE)
        page = contexts[key].new_page()
        pages.append(page)
        watch.on(page, left)
        page.goto(url)
        if wait:
            page.wait_for_selector("#view-live .live")
            page.wait_for_function("document.querySelector('#model-state')?.dataset.state === 'live'")
        return page

    yield opener
    for page in pages:
        page.close()
    assert watch.faults == [], watch.faults


def store(page: Page, expression: str) -> Any:
    """A value of the page's store, for instance ``main.tokens.length``."""
    return page.evaluate(f"window.specdemo.store.{expression}")


def tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def fill(page: Page, prompt: str) -> None:
    page.fill("#field-prompt textarea", prompt)


def set_number(page: Page, elem_id: str, value: float) -> None:
    """Type into the number box of a slider or number field.

    A part that has just been folded out is drawn a moment later once more, with its first values:
    type again until what was typed stands."""
    box = page.locator(f"#{elem_id} input[type=number]")
    for _ in range(20):
        box.fill(str(value))
        page.keyboard.press("Tab")
        page.wait_for_timeout(250)
        if float(box.input_value() or "nan") == value:
            return
    raise AssertionError(f"{elem_id} does not keep {value}")


def run(page: Page, prompt: str, length: int = 16, wait: bool = True) -> None:
    """Run a prompt in the Live tab, and wait for both runs to end."""
    fill(page, prompt)
    set_number(page, "field-length", length)
    page.evaluate("window.specdemo.player.stop()")
    before = store(page, "main?.uid ?? 0")
    page.click("#do-run")
    if wait:
        page.wait_for_function(
            f"(() => {{ const s = window.specdemo.store; return s.main && s.main.uid > {before}"
            " && s.main.finished && s.plain?.finished; })()"
        )
        drawn(page)


def drawn(page: Page) -> None:
    """Wait until the streams show all tokens that have come: a slow machine draws them a while later."""
    page.wait_for_function(
        "['main', 'plain'].every(slot => document.querySelectorAll(`.lane-${slot} .stream > .token`)"
        ".length === (window.specdemo.store.runs.get(slot)?.tokens.length ?? 0))"
    )


def violations(page: Page) -> list[str]:
    """Serious and critical findings of axe-core on what is on show."""
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{v['id']}: {v['help']} ({node['target'][0]})"
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
        for node in v["nodes"][:3]
    ]

"""Takes the README's screenshots from the served page: ``python tests/make_screenshots.py [FOLDER]``.

Each tab in light, dark, phone width and Chinese, of a recorded run that comes with the page; quantised
to a palette, so that a picture stays small.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from browser import ARGUMENTS, serve
from install_browser import system_browser
from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from test_browser_tabs import TABS

from specdemo.ui.backend import Backend, default_loader

FOLDER = Path(__file__).resolve().parent.parent / "assets" / "screenshots"
NAMES = ("live", "round", "lossless", "why", "compare", "learn")
LOOKS = (
    ("light", "en", 1200, False),
    ("dark", "en", 1200, True),
    ("phone", "en", 390, False),
    ("zh", "zh", 1200, False),
)
TALLEST = 1700  # pixels kept of a page: the lessons are long


def shoot(browser: Browser, url: str, folder: Path) -> None:
    for look, lang, width, dark in LOOKS:
        page = browser.new_page(
            viewport={"width": width, "height": 900}, locale={"en": "en-US", "zh": "zh-CN"}[lang]
        )
        page.set_default_timeout(200_000)
        page.goto(f"{url}?__theme={'dark' if dark else 'light'}")
        page.wait_for_selector("#view-live .lane-main .token")
        page.get_by_role("tab", name=TABS[lang][0], exact=True).wait_for()
        page.evaluate("window.specdemo.player.stop(); window.specdemo.store.changed()")
        page.wait_for_function("document.querySelector('.chart').data?.[0].x.length > 2")
        page.fill("#field-prompt textarea", "One, two, three, one, two, three, one,")
        page.fill("#field-length input[type=number]", "32")
        for name, label in zip(NAMES, TABS[lang], strict=True):
            page.evaluate(
                "label => [...document.querySelectorAll('#tabs button[role=tab]')]"
                ".find(b => b.textContent.trim() === label).click()",
                label,
            )
            if name in ("lossless", "compare") and page.evaluate("window.specdemo.store.data.size < 9"):
                act(page, name)
            page.wait_for_timeout(1500)
            picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
            picture = picture.crop((0, 0, picture.width, min(picture.height, TALLEST)))
            picture.quantize(96).save(folder / f"{name}-{look}.png", optimize=True)
        page.close()


def act(page: object, name: str) -> None:
    """What a tab shows only once asked: draws with a bug, the comparison of a short prompt."""
    from playwright.sync_api import Page

    assert isinstance(page, Page)
    if name == "lossless":
        page.click("#field-exhibit input")
        page.locator("[role=option]").nth(1).click()
        page.click("#do-draw")
        page.wait_for_function(
            "(d => d && d.done === d.draws)(window.specdemo.store.data.get('lossless'))"
        )
    else:
        page.click("#do-compare-all")
        page.wait_for_function("(d => d && d.at === d.of)(window.specdemo.store.data.get('compare'))")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    backend = Backend(default_loader())
    site, demo = serve(backend)
    backend.start().wait()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=system_browser(), args=ARGUMENTS)
        shoot(browser, site.url, folder)
        browser.close()
    demo.close(verbose=False)


if __name__ == "__main__":
    main()

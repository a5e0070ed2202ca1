"""Takes the README's screenshots from the served page: ``python tests/make_screenshots.py [FOLDER]``.

Every tab with real data: the recorded run that comes with the page, and on the tabs that measure what
they measure here and now. Pictures are reduced to a palette, so that each stays small.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from browser import ARGUMENTS, serve, set_number
from install_browser import system_browser
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from specdemo.ui.backend import Backend, default_loader
from specdemo.ui.text import TEXTS

FOLDER = Path(__file__).resolve().parent.parent / "assets" / "screenshots"
ALL = ("live", "round", "lossless", "why", "compare", "learn")
LOOKS: dict[str, tuple[str, int, str, tuple[str, ...]]] = {  # language, width, theme, tabs
    "light": ("en", 1280, "light", ALL),
    "zh": ("zh", 1280, "light", ("lossless", "learn")),
    "dark": ("en", 1280, "dark", ("live", "round", "learn")),
    "zh-dark": ("zh", 1280, "dark", ("live",)),
    "phone": ("en", 390, "light", ("live", "round", "why", "learn")),
    "phone-zh": ("zh", 390, "dark", ("live", "lossless")),
    "projector": ("en", 1280, "light", ("live", "round")),
}
TALLEST = 1500  # pixels kept of a page: the lessons are long
BRANCHED = "r => new Set(r.nodes.map(n => n.parent)).size < r.nodes.length && r.tokens.length > 3"
STORE = "window.specdemo.store"


def shoot(browser: Browser, url: str, folder: Path, look: str) -> None:
    lang, width, theme, tabs = LOOKS[look]
    height = 900 if width > 600 else 844
    page = browser.new_page(viewport={"width": width, "height": height})
    page.set_default_timeout(300_000)
    page.goto(f"{url}?__theme={theme}&lang={lang}")
    page.get_by_role("tab", name=TEXTS[lang]["tab_live"], exact=True).wait_for()
    page.wait_for_selector("#view-live .lane-main .token")
    if look == "projector":
        page.get_by_role("button", name=TEXTS[lang]["projector"]).click()
    page.evaluate(f"window.specdemo.player.stop(); {STORE}.changed()")
    page.wait_for_function("document.querySelector('.chart').data?.[0].x.length > 2")
    page.click("#do-example-repeat")
    set_number(page, "field-length", 24)  # of the comparison: the run on show is a recorded one
    for name in tabs:
        page.get_by_role("tab", name=TEXTS[lang][f"tab_{name}"], exact=True).click()
        act(page, name, measuring=width > 600)
        page.wait_for_timeout(1500)
        page.evaluate("document.activeElement?.blur(); window.scrollTo(0, 0)")
        picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
        picture = picture.crop((0, 0, picture.width, min(picture.height, TALLEST)))
        picture.quantize(96).save(folder / f"{name}-{look}.png", optimize=True)
        print(f"{name}-{look}.png", flush=True)
    page.close()


def act(page: Page, name: str, measuring: bool) -> None:
    """Brings a tab to where there is something to see."""
    if name == "live":
        page.locator(".lane-main .o-accepted").nth(3).click()
    elif name == "round":
        page.evaluate(
            f"{STORE}.round = Math.max(0, {STORE}.main.rounds.findIndex({BRANCHED})); {STORE}.changed()"
        )
    elif name == "lossless" and measuring:
        page.click("#field-exhibit input")
        page.locator("[role=option]").nth(1).click()  # a draft without a residual
        page.click("#do-draw")
        page.wait_for_function(f"(d => d && d.done === d.draws)({STORE}.data.get('lossless'))")
    elif name == "why" and measuring:
        page.click("#do-measure-curve")
        page.wait_for_function(f"{STORE}.statuses.get('why')?.key === 'status_measured'")
        page.click("#do-explain")
        page.wait_for_function(f"{STORE}.data.get('why')?.explanation")
    elif name == "compare" and measuring:
        page.click("#do-compare-all")
        page.wait_for_function(f"(d => d && d.at === d.of)({STORE}.data.get('compare'))")
    elif name == "learn":
        page.locator(".options button").first.click()


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    looks = sys.argv[2:] or list(LOOKS)
    backend = Backend(default_loader())
    site, demo = serve(backend)
    backend.start().wait()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=system_browser(), args=ARGUMENTS)
        for look in looks:
            shoot(browser, site.url, folder, look)
        browser.close()
    demo.close(verbose=False)


if __name__ == "__main__":
    main()

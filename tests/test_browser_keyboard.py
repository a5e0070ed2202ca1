"""The keyboard alone: every control of every tab is reached with Tab, shows its focus, and works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from browser import PATIENCE, Watch
from hosted import Hosted, hosted
from playwright.sync_api import Browser, FileChooser, Page, Route, expect

pytest_plugins = ("browser",)

TABS = ("Live", "One round", "Is it lossless?", "Why is it fast?", "Compare", "Learn")
CONTROLS = "a[href], button, input, select, textarea, summary, [tabindex], [role=button], [role=tab]"
# Controls that are to be reached: on show, not switched off. Tokens of a stream are one stop (arrows go
# on from there), as are the choices of a group of radio buttons.
WANTED = f"""() => {{
  const shown = (e) => e.checkVisibility({{visibilityProperty: true}}) && e.getClientRects().length > 0;
  const all = [...document.querySelectorAll('{CONTROLS}')].filter((e) =>
    shown(e) && !e.disabled && !e.closest('[aria-hidden=true], [inert]') &&
    !e.matches('[data-token], h2'));
  all.forEach((e, i) => {{ e.dataset.stop = i; }});
  return all.map((e) => e.outerHTML.slice(0, 160));
}}"""
# The stop that has the focus, and whether one sees it: an outline in the colour of focus, around the
# element or, where that is hidden (a radio button in its label, a node of a tree), around what is seen.
FOCUSED = """() => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  const colour = document.createElement('i');
  colour.style.color = 'var(--focus)';
  document.body.append(colour);
  const focus = getComputedStyle(colour).color;
  colour.remove();
  const ringed = (x) => {
    const c = getComputedStyle(x);
    const outline = c.outlineStyle === 'solid' && parseFloat(c.outlineWidth) >= 2;
    const framed = x.matches('rect') && parseFloat(c.strokeWidth) >= 3;
    return (outline && c.outlineColor === focus) || (framed && c.stroke === focus);
  };
  const places = [e, e.closest('label'), e.querySelector(':scope > rect')].filter(Boolean);
  const {top, bottom} = e.getBoundingClientRect();
  const what = e.outerHTML.slice(0, 160);
  const inside = bottom > 0 && top < innerHeight;
  return {stop: e.dataset.stop ?? null, seen: places.some(ringed), inside, what};
}"""

# What would move: elements and their ::before and ::after, with a running time above 1 ms.
MOVING = """() => [...document.querySelectorAll('*')].flatMap((e) =>
  [null, '::before', '::after'].map((part) => {
    const c = getComputedStyle(e, part);
    const long = (times) => times.split(',').some((time) => parseFloat(time) > 0.001);
    const animated = c.animationName !== 'none' && long(c.animationDuration);
    const moves = animated || long(c.transitionDuration) || c.scrollBehavior === 'smooth';
    return moves ? [e.tagName, e.className, part, c.animationName, c.transition].join(' ') : null;
  })).filter(Boolean)"""


@pytest.fixture(scope="module")
def served(tiny_llama: Any) -> Iterator[Hosted]:
    with hosted(tiny_llama) as page:
        yield page


@pytest.fixture
def page(served: Hosted, chromium: Browser) -> Iterator[Page]:
    watch = Watch()
    options: dict[str, Any] = {"viewport": {"width": 1200, "height": 900}, "accept_downloads": True}
    # Without motion an outline is there at once, and the recorded run stands.
    with chromium.new_context(**options, reduced_motion="reduce") as context:
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        watch.on(page)
        page.goto(f"{served.url}/?lang=en")
        page.wait_for_selector("#view-live .lane-main .token")
        page.wait_for_function("document.querySelector('#model-state')?.dataset.state === 'live'")
        page.evaluate("window.specdemo.player.stop(); window.specdemo.store.changed()")
        yield page
    assert watch.faults == [], watch.faults


def begin(page: Page) -> None:
    """The next Tab goes to the first control of the page."""
    page.evaluate(
        "(() => { const top = document.createElement('i'); top.tabIndex = -1;"
        " document.body.prepend(top); top.focus(); top.remove(); scrollTo(0, 0); })()"
    )


def reach(page: Page, selector: str) -> None:
    """Press Tab until the element has the focus."""
    begin(page)
    for _ in range(140):
        page.keyboard.press("Tab")
        if page.evaluate("s => document.activeElement?.matches(s) ?? false", selector):
            return
    raise AssertionError(f"Tab does not reach {selector}")


def press(page: Page, selector: str, *keys: str) -> None:
    reach(page, selector)
    for key in keys or ("Enter",):
        page.keyboard.press(key)


def choose(page: Page, field: str, wanted: str) -> None:
    """Take a choice of a list with the arrow keys."""
    reach(page, f"{field} input")
    page.keyboard.press("ArrowDown")
    expect(page.locator("[role=option]").first).to_be_visible()
    pointed = page.locator("[role=option].active")
    for _ in range(12):
        if pointed.count() and wanted in pointed.inner_text():
            break
        page.keyboard.press("ArrowDown")
        page.wait_for_timeout(150)
    page.keyboard.press("Enter")
    expect(page.locator(f"{field} input")).to_have_value(re.compile(re.escape(wanted)))


def go(page: Page, name: str) -> None:
    reach(page, f"#tabs button[role=tab]:nth-of-type({TABS.index(name) + 1})")
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", name=name, exact=True)).to_have_attribute("aria-selected", "true")


def store(page: Page, expression: str) -> Any:
    return page.evaluate(f"window.specdemo.store.{expression}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tab_reaches_every_control_and_its_focus_is_seen(page: Page, scheme: str) -> None:
    if scheme == "dark":
        press(page, ".header .tools button", "Enter")
        assert page.evaluate("document.body.classList.contains('dark')")
    press(page, "#more > button")  # the folded settings too
    for name in TABS:
        go(page, name)
        page.wait_for_timeout(800)
        wanted = page.evaluate(WANTED)
        assert len(wanted) > 10, name
        begin(page)
        found: set[int] = set()
        for _ in range(len(wanted) + 5):
            page.keyboard.press("Tab")
            at = page.evaluate(FOCUSED)
            if at is None:
                break
            assert at["seen"], f"{name}: no focus to be seen on {at['what']}"
            assert at["inside"], f"{name}: the focus is outside of the window on {at['what']}"
            if at["stop"] is not None:
                found.add(int(at["stop"]))
        missed = [what for number, what in enumerate(wanted) if number not in found]
        assert missed == [], f"{name}: {missed}"


def test_the_live_tab_and_the_header_work_by_keyboard(page: Page) -> None:
    choosers: list[FileChooser] = []
    # From here on: a watch that is set together with the key press can come too late for the event.
    page.on("filechooser", lambda chooser: choosers.append(chooser))
    press(page, "#field-prompt textarea", "Control+a")
    page.keyboard.type("One, two, three, one, two,")
    choose(page, "#field-drafter", "early exit")
    press(page, "#field-length input[type=number]", "Control+a")
    page.keyboard.type("16")
    press(page, "#do-run", "Enter")
    page.wait_for_function(
        "(m => m?.started?.prompt.startsWith('One, two') && m.finished)(window.specdemo.store.main)"
    )
    press(page, ".lane-main .stream", "ArrowRight", "ArrowRight")
    assert page.evaluate("document.activeElement.dataset.token") == "1"
    expect(page.locator(".inspector .facts")).to_contain_text("p")
    press(page, ".lane-head input", "Space")
    assert page.is_checked(".lane-head input")
    press(page, ".controls input[type=range]", "Home")
    assert store(page, "time") == 0
    press(page, ".controls select", "ArrowDown")
    assert page.evaluate("window.specdemo.player.speed") == 2
    press(page, ".controls .play", "Space")
    page.wait_for_function("window.specdemo.player.playing || window.specdemo.store.time === Infinity")
    reach(page, ".controls button:last-of-type")
    with page.expect_download():
        page.keyboard.press("Enter")
    reach(page, "#do-open-file")
    with page.expect_file_chooser():
        page.keyboard.press("Enter")
    assert len(choosers) == 1
    press(page, ".header .tools button:last-child", "Space")
    assert page.evaluate("document.documentElement.classList.contains('projector')")
    press(page, "#language label:last-child input", "Space")
    expect(page.get_by_role("tab", name="学习", exact=True)).to_be_visible()
    press(page, "#language label:first-child input", "Space")
    expect(page.get_by_role("tab", name="Learn", exact=True)).to_be_visible()


def test_the_other_tabs_work_by_keyboard(page: Page) -> None:
    press(page, "#field-prompt textarea", "Control+a")
    page.keyboard.type("One, two, three, one, two,")  # for Compare
    go(page, "One round")
    expect(page.locator(".tree")).to_be_visible()  # the tab opens at a round with a refusal in it
    before = store(page, "round")
    press(page, ".round-nav button:last-of-type")
    assert store(page, "round") == before + 1
    press(page, ".round-nav input", "ArrowLeft")
    assert store(page, "round") == before
    press(page, ".stage-step", "Space")
    expect(page.locator(".stage-step").first).to_have_attribute("aria-pressed", "true")
    press(page, '[data-node="1"]', "Enter")
    expect(page.locator('[data-node="1"]')).to_have_attribute("aria-pressed", "true")
    assert page.evaluate("document.activeElement.dataset.node") == "1", "the focus stays on it"

    go(page, "Is it lossless?")
    choose(page, "#field-exhibit", "bug: greedy draft")
    press(page, "#field-draws input[type=number]", "Control+a")
    page.keyboard.type("500")
    press(page, "#do-draw")
    page.wait_for_function("(d => d && d.done === d.draws)(window.specdemo.store.data.get('lossless'))")
    assert store(page, "data.get('lossless').exhibit") == "greedy_as_sampled", "a bug is switched on"

    go(page, "Why is it fast?")
    press(page, "#field-guess_gamma input[type=range]", "ArrowRight")
    press(page, "#do-explain")
    page.wait_for_function("window.specdemo.store.data.get('why')?.guess.gamma === 5")

    go(page, "Compare")
    press(page, "#do-compare-all")
    expect(page.locator("#view-compare .state")).to_contain_text("Compared", timeout=PATIENCE)
    reach(page, ".compare .controls button")
    with page.expect_download():
        page.keyboard.press("Enter")

    go(page, "Learn")
    press(page, 'a[href="#lesson-verify"]')
    assert page.evaluate("document.activeElement.id") == "title-verify"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") < 300
    press(page, "#guess-verify-1", "Space")
    expect(page.locator("#lesson-verify .told")).to_contain_text("min(1, p/q)")
    assert page.evaluate("document.activeElement.id") == "guess-verify-1"


def test_a_recording_that_comes_late_takes_no_focus_away(page: Page) -> None:
    held: list[Route] = []
    page.route("**/recordings/*.jsonl", lambda route: held.append(route))
    go(page, "Learn")
    reach(page, 'a[href="#lesson-verify"]')
    figures = page.locator(".lesson-figure figcaption:not(:empty)")
    before = figures.count()
    assert held, "a lesson waits for its recording"
    page.unroute("**/recordings/*.jsonl")  # lets those that are held go on
    expect(page.locator(".lesson-figure figcaption:empty")).to_have_count(0)
    assert figures.count() > before
    assert page.evaluate("document.activeElement.hash") == "#lesson-verify"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "title-verify"


def test_nothing_moves_for_who_wants_no_motion(served: Hosted, chromium: Browser) -> None:
    with chromium.new_context(
        reduced_motion="reduce", viewport={"width": 1200, "height": 900}
    ) as context:
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto(f"{served.url}/?lang=en")
        page.wait_for_selector("#view-live .lane-main .token")
        assert page.evaluate("!window.specdemo.player.playing"), "the recorded run stands at its end"
        page.fill("#field-prompt textarea", "One, two, three, one, two,")
        page.click("#do-run")
        for name in TABS:
            page.get_by_role("tab", name=name, exact=True).click()
            for _ in range(5):
                assert (
                    page.evaluate(
                        "document.getAnimations().map(a => a.animationName ?? a.constructor.name)"
                    )
                    == []
                )
                page.wait_for_timeout(100)
            moving = page.evaluate(MOVING)
            assert moving == [], name

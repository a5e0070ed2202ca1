"""The Live tab in Chromium: first paint, stream, colours, chart, Stop, two pages, examples."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from browser import Open, Site, drawn, run, serve, store
from playwright.sync_api import Route, expect

from specdemo.ui.backend import Backend
from specdemo.ui.text import TEXTS
from specdemo.ui.views.form import drafter_choices
from specdemo.ui.views.presets import PRESETS

pytest_plugins = ("browser",)


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)


def test_a_recorded_run_plays_before_the_model_is_loaded(open_page: Open) -> None:
    released = threading.Event()

    def load(progress: Any) -> Any:
        released.wait()
        raise RuntimeError("not needed here")

    backend = Backend(load)
    served, demo = serve(backend)
    job = backend.start()
    try:
        page = open_page(served.url, wait=False)
        page.wait_for_selector(".lane-main .token")
        expect(page.locator(".badge")).to_contain_text("recorded on")
        assert page.get_attribute("#model-state", "data-state") == "loading"
        page.wait_for_function("window.specdemo.store.time === Infinity")
        drawn(page)
        shown = page.locator(".lane-main .stream > .token").count()
        assert shown == store(page, "main.tokens.length") > 0
        page.close()  # or what it still asks for finds no server
    finally:
        released.set()
        job.wait(10)
        demo.close(verbose=False)
    assert backend.state == "failed"


def test_the_recorded_run_plays_before_gradio_has_built_the_page(site: Site, open_page: Open) -> None:
    """The page's own stage is there first; what plays on it goes on in the page that Gradio builds."""
    page = open_page("about:blank", wait=False)
    held: list[Route] = []
    gate = threading.Event()

    def keep(route: Route) -> None:
        if gate.is_set():
            route.continue_()
        else:
            held.append(route)

    page.route("**/assets/index-*.js", keep)
    page.goto(site.url, wait_until="commit")
    page.wait_for_selector("#early .lane-main .token")
    expect(page.locator("#early .badge")).to_contain_text("recorded on")
    assert page.locator("#view-live").count() == 0
    page.evaluate("window.kept = document.querySelector('#early .lane-main .token')")
    gate.set()
    for route in held:
        route.continue_()
    page.wait_for_selector("#view-live .lane-main .token")
    assert page.evaluate("window.kept.closest('#view-live') !== null")
    assert page.locator("#early").count() == 0


@pytest.mark.parametrize("lang", list(TEXTS))
def test_every_example_fills_the_form(site: Site, open_page: Open, lang: str) -> None:
    page = open_page(f"{site.url}?lang={lang}")
    page.get_by_role("button", name=TEXTS[lang]["run"], exact=True).wait_for()
    for preset in PRESETS:
        page.get_by_role("button", name=TEXTS[lang][f"example_{preset.key}"], exact=True).click()
        expect(page.locator("#field-prompt textarea")).to_have_value(preset.prompt)
        length = str(preset.values["length"])
        expect(page.locator("#field-length input[type=number]")).to_have_value(length)
        chosen = TEXTS[lang][dict(map(reversed, drafter_choices()))[preset.values["drafter"]]]
        expect(page.locator("#field-drafter input")).to_have_value(chosen)


def test_a_run_streams_into_spans_with_the_colour_of_their_origin(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    run(page, "Count: one, two, three, one, two, three, one, two,", length=24)
    tokens = store(page, "main.tokens.map(t => [t.text, t.origin])")
    spans = page.eval_on_selector_all(
        ".lane-main .stream > .token",
        "all => all.map(e => [e.textContent, e.className.match(/o-(\\w+)/)[1]])",
    )
    assert spans == tokens and len(tokens) > 0
    assert "".join(text for text, _ in tokens) == store(page, "main.finished.text")
    plain = page.eval_on_selector_all(".lane-plain .stream > .token", "all => all.map(e => e.className)")
    assert plain and all("o-target" in name for name in plain)
    lines = page.eval_on_selector_all(
        ".lane-main .stream > .token", "all => all.map(e => getComputedStyle(e).textDecorationStyle)"
    )
    styles = {origin: line for (_, origin), line in zip(tokens, lines, strict=True)}
    assert len(set(styles.values())) == len(styles), "each origin has an underline of its own"


def test_speedup_chart_and_figures_come_from_the_measured_runs(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    run(page, "Say the word yes ten times: yes yes yes yes", length=24)
    # The chart gives way on a slow machine: its last points may come a while after the tokens.
    page.wait_for_function(
        "document.querySelector('.chart').data.slice(0, 2).every((trace, i) => trace.x.length === "
        "window.specdemo.store[['main', 'plain'][i]].rounds.length + 1)",
        timeout=60_000,
    )
    rates = [store(page, f"{slot}.finished.summary.tokens_per_second") for slot in ("main", "plain")]
    shown = page.inner_text("#speedup-value")
    assert shown == f"{rates[0] / rates[1]:.2f}×"
    slower = "slower" in (page.get_attribute("#speedup-value", "class") or "")
    assert slower == (rates[0] / rates[1] < 1.0)
    points = page.evaluate("document.querySelector('.chart').data.map(t => [t.x.length, t.y.at(-1)])")
    for (count, last), slot in zip(points, ("main", "plain"), strict=False):
        assert count == store(page, f"{slot}.rounds.length") + 1
        assert last == store(page, f"{slot}.tokens.length")
    figures = page.locator(".figures").inner_text()
    assert str(store(page, "main.rounds.length")) in figures
    expect(page.locator("#view-live .state")).to_contain_text("Done:")


def test_a_token_is_explained_by_keyboard_and_refused_drafts_can_be_shown(
    site: Site, open_page: Open
) -> None:
    page = open_page(site.url)
    page.click("#field-drafter input")
    page.get_by_role("option", name="early exit (self-speculation)").click()
    run(page, "Write about the sea.", length=20)
    page.focus(".lane-main .stream")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.token") == "1"
    expect(page.locator(".inspector")).to_contain_text("round")
    refused = store(
        page, "main.rounds.flatMap(r => r.verdicts).filter(v => v.judgement !== 'accepted').length"
    )
    assert page.locator(".ghost").count() == 0
    page.get_by_label("show refused drafts").check()
    assert page.locator(".ghost").count() == refused > 0


@pytest.fixture
def slow(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of at least 20 ms: no machine is so fast that a long run is over before it is stopped."""
    monkeypatch.setattr(site.backend.loaded().target, "synchronize", lambda: time.sleep(0.02))


def test_stop_ends_the_run_within_a_round_and_the_page_goes_on(
    site: Site, open_page: Open, slow: None
) -> None:
    page = open_page(site.url, left=True)
    before = store(page, "plain?.uid ?? 0")
    run(page, "Write a very long story about the sea.", length=1000, wait=False)
    page.wait_for_function(
        f"(p => p && p.uid > {before} && p.rounds.length > 3)(window.specdemo.store.plain)"
    )
    page.click("#do-stop")
    page.wait_for_function("window.specdemo.store.plain?.finished?.reason === 'cancelled'")
    wait_until(lambda: site.idle)
    expect(page.locator("#view-live .state")).to_contain_text("Stopped.")
    assert page.input_value("#field-prompt textarea") == "Write a very long story about the sea."
    page.reload()
    page.wait_for_selector("#view-live .live")
    page.wait_for_function("document.querySelector('#model-state')?.dataset.state === 'live'")
    run(page, "Hello", length=8)


def test_a_closed_page_ends_its_run(site: Site, open_page: Open, slow: None) -> None:
    page = open_page(site.url)
    before = store(page, "plain?.uid ?? 0")
    run(page, "Write a very long story about a mountain.", length=1000, wait=False)
    page.wait_for_function(
        f"(p => p && p.uid > {before} && p.rounds.length > 3)(window.specdemo.store.plain)"
    )
    assert not site.idle
    page.close()
    wait_until(lambda: site.idle, 20)


def test_two_pages_take_turns_and_get_their_own_text(site: Site, open_page: Open) -> None:
    first, second = open_page(site.url), open_page(site.url)
    run(first, "Tell me about apples.", length=40, wait=False)
    run(second, "Tell me about bridges.", length=16, wait=False)
    for page, prompt in ((first, "Tell me about apples."), (second, "Tell me about bridges.")):
        page.wait_for_function(
            f"(({{ main }}) => main?.started?.prompt === '{prompt}' && main.finished)"
            "(window.specdemo.store)"
        )
        assert store(page, "plain.started.prompt") == prompt
        drawn(page)
        texts = page.eval_on_selector_all(
            ".lane-main .stream > .token", "all => all.map(e => e.textContent)"
        )
        assert "".join(texts) == store(page, "main.finished.text")

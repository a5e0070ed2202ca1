"""Every tab in Chromium, in both languages: rounds, lossless, why, compare, lessons, export, access."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from browser import Open, Site, fill, run, set_number, store, tab, violations
from playwright.sync_api import Page, expect

pytest_plugins = ("browser",)

TABS = {
    "en": ("Live", "One round", "Is it lossless?", "Why is it fast?", "Compare", "Learn"),
    "zh": ("实时", "一轮", "真的无损吗？", "为什么快？", "比较", "学习"),
}


def sampled_run(page: Page, length: int = 24) -> None:
    """A run with refusals in it, at temperature 1, plain decoding measured."""
    page.click("#field-drafter input")
    page.locator("[role=option]").nth(3).click()  # early_exit
    set_number(page, "field-temperature", 1.0)
    run(page, "Write about a small harbour.", length=length)


def test_a_round_is_stepped_through_by_keyboard(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    sampled_run(page)
    tab(page, "One round")
    expect(page.locator(".round-name")).to_contain_text("Round")
    index = store(page, "round")
    verdicts = store(page, f"main.rounds[{index}].verdicts.map(v => v.judgement)")
    assert "rejected" in verdicts, "the tab opens at a refusal"
    classes = page.eval_on_selector_all(
        ".tree [data-node]", "all => all.map(e => [e.dataset.node, e.getAttribute('class')])"
    )
    for node, names in classes:
        if node != "final":
            assert verdicts[int(node)] in names
    assert any(node == "final" for node, _ in classes)
    rows = store(page, f"main.rounds[{index}].nodes.length") + 1
    assert page.locator(".mask .seen").count() == rows * (rows + 1) // 2, "a chain's mask is a triangle"
    expect(page.locator(".formula")).to_contain_text("min(1, p/q)")
    expect(page.locator(".alternatives")).to_contain_text("residual")
    page.focus(".stage-step[aria-pressed=true]")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".stage-step[aria-pressed=true]")).to_contain_text("The cut")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".beam")).to_have_count(1)
    page.keyboard.press("PageDown")
    assert store(page, "round") == min(index + 1, store(page, "main.rounds.length") - 1)


def test_lossless_shows_equal_texts_and_a_bug_breaks_the_histogram(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    run(page, "Name three colours.", length=16)
    tab(page, "Is it lossless?")
    same = store(
        page, "main.finished.token_ids.join() === window.specdemo.store.plain.finished.token_ids.join()"
    )
    expect(page.locator(".verdict")).to_contain_text("The same" if same else "part at token")
    set_number(page, "field-draws", 500)
    page.click("#do-draw")
    page.wait_for_function("window.specdemo.store.data.get('lossless')?.done === 500")
    data = store(page, "data.get('lossless')")
    assert data["exhibit"] == "exact" and not data["first"]["fit"]["differs"]
    assert sum(bar["count"] for bar in data["second"]["bars"]) == 500
    assert sum(bar["p"] for bar in data["first"]["bars"]) == pytest.approx(1.0, abs=1e-6)
    page.click("#field-exhibit input")
    page.get_by_role("option", name="bug: greedy draft, judged as sampled").click()
    page.click("#do-draw")
    page.wait_for_function(
        "(d => d?.exhibit === 'greedy_as_sampled' && d.done === "
        "500)(window.specdemo.store.data.get('lossless'))"
    )
    assert store(page, "data.get('lossless').first.fit.differs")
    expect(page.locator(".finding.differs").first).to_contain_text("almost never")


def test_typical_stands_next_to_exact_with_its_drift(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    fill(page, "One, two, three, four, one, two, three,")
    set_number(page, "field-length", 12)
    tab(page, "Is it lossless?")
    expect(page.locator(".rules tbody tr")).to_have_count(2)  # the recorded pair
    page.click("#do-both-rules")
    page.wait_for_function("window.specdemo.store.runs.get('rule:typical')?.finished")
    runs = [store(page, f"runs.get('rule:{rule}').finished") for rule in ("exact", "typical")]
    drift = runs[1]["summary"]["drift"]
    assert "drift" not in runs[0]["summary"] and drift["tokens"] == runs[1]["summary"]["tokens"]
    expect(page.locator(".rules tbody tr").last).to_contain_text(
        f"{drift['different']} of {drift['tokens']}"
    )


def test_a_draft_with_several_matches_is_drawn_as_a_tree(site: Site, open_page: Open) -> None:
    """The recorded run that plays first: where its verses went on differently, its drafts branch."""
    page = open_page(site.url)
    page.evaluate("window.specdemo.player.stop()")
    branched = "r => new Set(r.nodes.map(n => n.parent)).size < r.nodes.length"
    index = store(page, f"main.rounds.findIndex({branched})")
    assert index >= 0
    page.evaluate(f"window.specdemo.store.round = {index}")
    tab(page, "One round")
    page.evaluate("window.specdemo.store.changed()")
    expect(page.locator(".tree [data-node]").first).to_be_visible()
    page.evaluate(f"window.specdemo.store.round = {index}; window.specdemo.store.changed()")
    expect(page.locator(".round-name")).to_contain_text(f"Round {index + 1} of")
    nodes = store(page, f"main.rounds[{index}].nodes")
    rows = page.eval_on_selector_all(
        ".tree [data-node]:not([data-node=final])",
        "all => all.map(e => e.getAttribute('transform').match(/ ([0-9.]+)\\)/)[1])",
    )
    assert len(rows) == len(nodes) and len(set(rows)) > 1, "branches stand below one another"


def test_why_multiplies_out_and_estimates_are_called_so(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    sampled_run(page)
    tab(page, "Why is it fast?")
    page.wait_for_function("window.specdemo.store.data.get('why')?.explanation")
    explanation = store(page, "data.get('why').explanation")
    value = explanation["predicted"]
    for factor in explanation["factors"]:
        value *= factor["value"]
    assert value == pytest.approx(explanation["measured"], rel=1e-9)
    assert explanation["measured"] == pytest.approx(
        store(page, "speedup(window.specdemo.store.main.rounds.length)"), rel=1e-6
    )
    expect(page.locator(".sd-view.why")).to_contain_text("An estimate, not a measurement")
    before = store(page, "main.uid")
    set_number(page, "field-guess_gamma", 2)
    page.click("#do-check-guess")
    page.wait_for_function(f"(m => m && m.uid > {before} && m.finished)(window.specdemo.store.main)")
    assert max(store(page, "main.rounds.map(r => r.nodes.length)")) <= 2


def test_compare_runs_every_drafter_and_its_table_can_be_saved(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    fill(page, "One, two, three, four, one, two, three,")
    set_number(page, "field-length", 12)
    tab(page, "Compare")
    page.click("#do-compare-all")
    expect(page.locator("#view-compare .state")).to_contain_text("Compared", timeout=90_000)
    names = page.eval_on_selector_all(".compare tbody th", "all => all.map(e => e.textContent)")
    assert names[0] == "none (before)" and names[-1] == "none (after)"
    assert {"ngram", "early_exit"} <= set(names)
    rates = [
        store(page, f"runs.get('cmp:{slot}').figures().rate") for slot in ("none", "ngram", "again")
    ]
    plain = 2 / (1 / rates[0] + 1 / rates[2])
    cells = page.locator(".compare tbody tr").nth(names.index("ngram")).locator("td").all_inner_texts()
    assert cells[5] == f"{rates[1] / plain:.2f}×", "against the mean of both plain runs"
    changed = max(rates[0], rates[2]) / min(rates[0], rates[2]) - 1 > 0.15
    expect(page.locator(".compare .finding")).to_contain_text(
        "speed changed" if changed else "against the mean of the two"
    )
    with page.expect_download() as download:
        page.get_by_role("button", name="Save table (CSV)").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").strip().split("\n")
    assert lines[0].startswith("drafter,model,dtype,device,seed,tokens,tau")
    assert [line.split(",")[0] for line in lines[1:]] == names
    with page.expect_download() as download:
        page.get_by_role("button", name="Save all runs (JSONL)").click()
    entries = [
        json.loads(line) for line in Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    ]
    assert all(entry["events"][-1]["type"] == "finished" for entry in entries)
    assert all(entry["plain_rate"] == pytest.approx(plain) for entry in entries)
    row = dict(zip(lines[0].split(","), lines[-1].split(","), strict=True))
    assert float(row["plain_rate"]) == pytest.approx(plain) and float(row["plain_apart"]) >= 0


def test_lessons_ask_first_and_answer_from_a_recorded_run(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    tab(page, "Learn")
    page.wait_for_selector("#lesson-professor .options button")
    told = page.locator("#lesson-professor .told")
    assert told.inner_text() == ""
    page.locator("#lesson-professor .options button").first.click()
    expect(told).to_contain_text("tested guesses were accepted")
    assert page.locator("#lesson-professor .options .right").count() == 1
    assert page.locator(".glossary dt").count() >= 20
    assert page.locator(".lesson").count() == 8


def test_an_exported_page_replays_offline_and_opens_again(
    site: Site, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(site.url)
    sampled_run(page, length=16)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as HTML page").click()
    file = tmp_path / "run.html"
    download.value.save_as(file)
    assert file.stat().st_size < 2_000_000
    text = store(page, "main.finished.text")
    other = open_page(file.as_uri(), wait=False)
    other.wait_for_selector(".lane-main .token")
    other.get_by_label("Replay speed").select_option("4")
    # Not wait_for_function: it evaluates a string, which the exported page's own policy forbids.
    expect(other.locator(".play")).to_have_text(re.compile("^Replay"), timeout=60_000)
    shown = other.eval_on_selector_all(
        ".lane-main .stream > .token", "all => all.map(e => e.textContent)"
    )
    assert "".join(shown) == text
    expect(other.locator(".tree")).to_be_visible()
    expect(other.locator(".chart svg")).to_be_visible()
    with page.expect_file_chooser() as chooser:
        page.click("#do-open-file")
    chooser.value.set_files(file)
    page.wait_for_function("window.specdemo.store.label?.kind === 'file'")
    assert store(page, "main.finished.text") == text and store(page, "plain.tokens.length") > 0
    with page.expect_download() as download:
        page.get_by_role("button", name="Save recording (JSONL)").click()
    first = Path(download.value.path()).read_text(encoding="utf-8").split("\n", 1)[0]
    assert json.loads(first)["type"] == "started"


def test_a_link_carries_prompt_settings_and_language(site: Site, open_page: Open) -> None:
    link = "?prompt=Hello%20%3Cb%3Elink&temperature=0.5&seed=7&drafter=early_exit"
    link += "&early_exit.gamma=5&lang=zh&rule=nonsense"
    page = open_page(site.url + link)
    page.wait_for_function("document.querySelector('#field-prompt textarea').value === 'Hello <b>link'")
    expect(page.get_by_role("tab", name="实时")).to_be_visible()
    assert page.input_value("#field-temperature input[type=number]") == "0.5"
    assert page.input_value("#control-early_exit-gamma input[type=number]") == "5"


@pytest.mark.parametrize(
    ("lang", "dark", "width"),
    [("en", False, 1200), ("zh", True, 390), ("en", True, 390), ("zh", False, 1280)],
)
def test_every_tab_reads_well_for_everyone(
    site: Site, open_page: Open, lang: str, dark: bool, width: int
) -> None:
    """No serious finding of axe-core, no sideways scrolling, all words in the page's language."""
    theme = "?__theme=dark" if dark else "?__theme=light"
    locale = {"en": "en-US", "zh": "zh-CN"}[lang]
    page = open_page(site.url + theme, width=width, locale=locale, dark=dark)
    page.get_by_role("tab", name=TABS[lang][0], exact=True).wait_for()
    page.evaluate("window.specdemo.player.stop()")
    found: dict[str, list[str]] = {}
    shown = page.locator("#tabs button[role=tab]")
    assert tuple(text.strip() for text in shown.all_inner_texts()) == TABS[lang], "all six, in no menu"
    for name in TABS[lang]:
        tab(page, name)
        page.wait_for_timeout(700)
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, f"{name} scrolls sideways by {wide} px"
        if problems := violations(page):
            found[name] = problems
    assert found == {}

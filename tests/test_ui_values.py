"""What comes from outside into the page: forms, links, traces, files; and the text that goes out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specdemo.errors import InputError
from specdemo.events import (
    Drafted,
    DraftNode,
    Finished,
    NodeVerdict,
    RecordingError,
    Started,
    Token,
    Verified,
)
from specdemo.export_html import DATA_MARK, embed, page, script, template
from specdemo.ui.views import bus as bus_module
from specdemo.ui.views import files, form, why
from specdemo.ui.views.bus import Bus
from specdemo.ui.views.parts import Call

VALUES: dict[str, Any] = {
    "prompt": "Hello", "mode": "single", "drafter": "ngram", "temperature": 0.7, "top_p": 0.9,
    "top_k": 0, "seed": 3, "length": 64, "rule": "exact",
}  # fmt: skip


def events(text: str = "cat") -> list[Any]:
    return [
        Started(1, "m", "ngram", "p", 3, {"temperature": 0.0}, "cpu", "fp32", 0, True),
        Drafted(0, (DraftNode(5, text, -1, None),), 1.0),
        Verified(0, (NodeVerdict("accepted", 1.0, 1.0),), (Token(5, text, "accepted", node=0),), 2.0),
        Finished("length", text, (5,), {"tokens": 1, "rounds": 1}),
    ]


def test_a_form_becomes_an_order_with_checked_values() -> None:
    order = form.order(VALUES, {"gamma": 4}, [])
    assert (
        order.prompt == "Hello" and order.params.max_new_tokens == 64 and order.params.temperature == 0.7
    )
    assert order.settings == {"gamma": 4} and order.draft == ""
    itself = form.order({**VALUES, "drafter": "draft_model@target", "mode": "raw"}, {}, [])
    assert (itself.drafter, itself.draft, itself.raw) == ("draft_model", "target", True)
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    chat = form.order({**VALUES, "mode": "chat"}, {}, turns)
    assert chat.prompt == [*turns, {"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("temperature", "hot"), ("temperature", -1), ("temperature", None),
        ("temperature", float("nan")),
        ("top_p", 0), ("top_k", 1.5), ("seed", -1), ("seed", "x"), ("length", 0),
        ("length", 10**9), ("rule", "x"),
    ],
)  # fmt: skip
def test_a_bad_value_is_one_sentence(name: str, bad: Any) -> None:
    with pytest.raises(InputError) as error:
        form.order({**VALUES, name: bad}, {}, [])
    assert str(error.value).endswith(".") and "\n" not in str(error.value)


def test_links_give_typed_values_and_drop_what_is_wrong() -> None:
    known = [*VALUES, "early_exit.gamma", "ngram.adaptive"]
    query = "prompt=a%20b&temperature=0.5&seed=7&early_exit.gamma=5&ngram.adaptive=false&mode=raw"
    assert form.from_link(query, known) == {
        "prompt": "a b", "temperature": 0.5, "seed": 7, "early_exit.gamma": 5,
        "ngram.adaptive": False, "mode": "raw",
    }  # fmt: skip
    wrong = (
        "temperature=hot&seed=-4&drafter=%3Cscript%3E&early_exit.gamma=999&length=1e99&other=1&top_k=1.5"
    )
    assert form.from_link(wrong, known) == {}
    assert len(form.from_link("prompt=" + "x" * 50_000, known)["prompt"]) == 20_000
    assert form.from_link("&".join(f"a{i}=1" for i in range(100)), known) == {}


def test_the_bus_only_grows_and_every_line_is_json() -> None:
    bus = Bus(["main"], kind="live")
    first = bus.text
    for event in events():
        bus.event(event)
    bus.status("done", "status_done", tokens=1)
    assert bus.text.startswith(first) and bus.text.endswith("\n")
    lines = [json.loads(line) for line in bus.text.splitlines()]
    assert lines[0]["do"] == "reset" and lines[1]["type"] == "started"
    assert Bus(["main"]).text != Bus(["main"]).text, "a new text never looks like a longer old one"


def test_a_windowed_bus_stays_short_repeats_seconds_and_ends_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(bus_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    bus = Bus(["main"], windowed=True)
    sent: list[tuple[float, str]] = []
    for number in range(4000):  # 250 characters each, one every 20 ms: 12 kB a second, 1 MB
        clock[0] += 0.02
        sent.append((clock[0], bus.page("data", name="x", value=f"{number:0200}").text))
    assert max(len(text) for _, text in sent) < 140_000
    have, anew = 0, 0  # lines that a page has which looks only every 3.5 seconds
    looked = 0.0
    for now, text in sent:
        head = json.loads(text.split("\n", 1)[0])
        first = head.get("first", 0)
        if now - looked > 3.5:
            looked = now
            assert first <= have, "nothing that came within the overlap is missed"
            have = first + text.count("\n") - (head["do"] == "more")
            anew += head["do"] == "more"
    assert anew > 5 and have > 3800
    whole = bus.whole.splitlines()
    assert len(whole) == 4001 and json.loads(whole[0])["do"] == "reset"
    assert [json.loads(line)["value"] for line in whole[1:]] == [f"{n:0200}" for n in range(4000)]


def test_an_exported_page_holds_its_data_safely_and_gives_it_back() -> None:
    hostile = "</script><script>alert(1)</script><!--\u2028 ${x} {{y}}"
    text = page({"main": events(hostile)}, "zh")
    data = text.split('id="specdemo-data">', 1)[1].split("</script>", 1)[0]
    assert "<" not in data and json.loads(data)["lang"] == "zh"
    assert files.runs_of(text)["main"] == [
        json.dumps(json.loads(line), separators=(",", ":")) for line in files.runs_of(text)["main"]
    ]
    assert json.loads(files.runs_of(text)["main"][2])["tokens"][0]["text"] == hostile
    assert len(text) < 2_000_000 and "http://" not in script().replace("http://www.w3.org/2000/svg", "")
    assert template().count(DATA_MARK) == 1 and "default-src 'none'" in text
    assert "</" not in embed({"a": "</x>"})


@pytest.mark.parametrize(
    "text",
    ["", "x", "<html>", '<script type="application/json" id="specdemo-data">[]</script>',
     '<script type="application/json" id="specdemo-data">{"runs":{"main":"x"}}</script>',
     '<script type="application/json" id="specdemo-data">{"runs":{"plain":[]}}</script>',
     '<script type="application/json" id="specdemo-data">' + "[" * 50_000 + "</script>"],
)  # fmt: skip
def test_files_that_are_no_recordings_are_refused(text: str) -> None:
    with pytest.raises(RecordingError):
        files.runs_of(text)


def test_opening_a_file_never_raises(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    for opened in (
        files.opened(str(path), "zh"),
        files.opened(None, "en"),
        files.added("/nowhere", "en"),
    ):
        assert json.loads(opened.splitlines()[-1])["state"] == "error"


@pytest.mark.parametrize(
    "trace",
    ["", "{}", "[]", '{"rounds": 3}', '{"rounds": [], "curve": {"a": 1}}', '{"rounds":[{"drafted":1}]}'],
)
def test_a_bad_trace_is_no_error_of_the_server(trace: str) -> None:
    values = {"trace": trace, "guess_gamma": 4, "guess_alpha": 0}

    async def last() -> str:
        call = Call(values, {}, "s", "en", None, None, [])  # type: ignore[arg-type]
        return [text async for text in why.explanation(call)][-1]

    assert json.loads(asyncio.run(last()).splitlines()[-1])["key"] == "why_nothing"


def test_the_cost_curve_is_read_between_its_points() -> None:
    curve = {1: 10.0, 4: 16.0, 8: 40.0}
    assert why.interpolated(curve, 1) == 10.0 and why.interpolated(curve, 2) == pytest.approx(12.0)
    assert why.interpolated(curve, 6) == pytest.approx(28.0) and why.interpolated(curve, 16) == 80.0

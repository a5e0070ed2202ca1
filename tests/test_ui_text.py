"""Words: the same keys and placeholders in every language, every key that the scripts use, headers."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

from specdemo.drafters import REGISTRY, controls
from specdemo.errors import SENTENCES, InputError
from specdemo.ui.text import ERRORS, LANGUAGES, TEXTS, preferred, say, say_error
from specdemo.ui.views import live_tab, tabs
from specdemo.ui.views.presets import PRESETS

SCRIPTS = Path(__file__).resolve().parent.parent / "assets" / "js"
OTHERS = [code for _, code in LANGUAGES if code != "en"]


def placeholders(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}


@pytest.mark.parametrize("lang", OTHERS)
@pytest.mark.parametrize(("english", "tables"), [(TEXTS["en"], TEXTS), (SENTENCES, ERRORS)])
def test_languages_have_the_same_keys_and_placeholders(
    lang: str, english: dict[str, str], tables: dict[str, dict[str, str]]
) -> None:
    other = tables[lang]
    assert set(english) == set(other)
    for key, sentence in english.items():
        assert placeholders(sentence) == placeholders(other[key]), key
        assert other[key].strip(), key


def test_chinese_is_chinese_wherever_english_is_words() -> None:
    names = re.compile(r"[\u4e00-\u9fff]")
    for key, sentence in TEXTS["zh"].items():
        if key.startswith("source_"):
            continue  # cited as they were published
        if TEXTS["en"][key] == sentence:
            assert not re.search(r"[a-z]{4,} [a-z]{3,}", sentence), f"{key} is not translated"
        elif len(sentence) > 30:
            assert names.search(sentence), key


def test_every_key_that_the_scripts_name_exists() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SCRIPTS.glob("*.js"))
    keys = set(re.findall(r'\bt\("(\w+)"', text))
    assert len(keys) > 80
    assert keys <= set(TEXTS["en"]), keys - set(TEXTS["en"])


def test_every_field_button_preset_and_drafter_has_words() -> None:
    words = TEXTS["en"]
    fields = [
        *live_tab.MAIN_FIELDS,
        *live_tab.MORE_FIELDS,
        *(f for tab in tabs.TABS for f in tab.fields),
    ]
    for each in fields:
        if each.kind != "hidden":
            assert each.label in words
        assert all(key in words for key, _ in each.choices)
    assert all(action.key in words for tab in tabs.TABS for action in tab.actions)
    assert all(f"tab_{tab.name}" in words for tab in tabs.TABS)
    assert all(f"example_{preset.key}" in words for preset in PRESETS)
    for name, kind in REGISTRY.items():
        assert f"drafter_{name}" in words, name
        assert all(f"control_{control}" in words for control in controls(kind)), name


@pytest.mark.parametrize(
    ("header", "lang"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("zh", "zh"),
        ("zh-Hans-SG", "zh"),
        ("de-DE,en;q=0.5,zh;q=0.7", "zh"),
        ("en-GB,zh;q=0.1", "en"),
        ("fr", "en"),
        ("", "en"),
        (None, "en"),
        (";;q=,zh;q=x,*;q=0.1", "en"),
    ],
)
def test_first_language_by_the_browsers_wish(header: str | None, lang: str) -> None:
    assert preferred(header) == lang


def test_errors_speak_the_pages_language() -> None:
    error = InputError("range", name="gamma", low=1, high=8, value="99")
    assert say_error("en", error) == str(error)
    assert "gamma" in say_error("zh", error) and "99" in say_error("zh", error)
    assert say_error("zh", error) != str(error)
    assert say("zh", "status_main", drafter="ngram").count("ngram") == 1

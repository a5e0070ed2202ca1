"""All sentences of the page, one table a language, with the same keys in each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...errors import SENTENCES, InputError
from .en import TEXT as EN
from .zh import ERRORS as ZH_ERRORS
from .zh import TEXT as ZH

TEXTS: dict[str, dict[str, str]] = {"en": EN, "zh": ZH}
ERRORS: dict[str, dict[str, str]] = {"en": SENTENCES, "zh": ZH_ERRORS}
LANGUAGES: tuple[tuple[str, str], ...] = (("English", "en"), ("简体中文", "zh"))


def spoken(lang: Any) -> str:
    """``lang`` if the page speaks it, else English: what a browser sends need not be a language."""
    return lang if isinstance(lang, str) and lang in TEXTS else "en"


def say(lang: str, key: str, **values: Any) -> str:
    """The sentence ``key`` in ``lang``, its placeholders filled."""
    return TEXTS[spoken(lang)][key].format(**values)


def say_error(lang: str, error: InputError) -> str:
    """The error's sentence in ``lang``; English where a translation is missing."""
    sentence = ERRORS[spoken(lang)].get(error.key)
    return str(error) if sentence is None else sentence.format(**error.values)


def preferred(header: str | None) -> str:
    """The language for an Accept-Language header: the first one that the page speaks.

    ``zh``, ``zh-CN``, ``zh-SG`` and ``zh-Hans`` are all the same Chinese here."""
    for name in _ranked(header or ""):
        if name.split("-")[0] in TEXTS:
            return name.split("-")[0]
    return "en"


def _ranked(header: str) -> Iterable[str]:
    weighed: list[tuple[float, str]] = []
    for item in header.lower().split(","):
        name, _, rest = item.strip().partition(";")
        try:
            weight = float(rest.strip().removeprefix("q=")) if rest else 1.0
        except ValueError:
            continue
        weighed.append((-weight, name.strip()))
    return [name for _, name in sorted(weighed, key=lambda pair: pair[0])]

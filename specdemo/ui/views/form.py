"""From what the form holds to an order: every value checked, every error one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from ... import drafters
from ...errors import InputError
from ...prompt import MAX_CHARACTERS
from ...sampling import SamplingParams
from ..backend import RULES, Order
from .parts import Call

ITSELF = "@target"
LONGEST = 1024  # tokens a visitor may ask for

Turn = dict[str, str]


def number(name: str, value: Any, low: float, high: float, whole: bool = False) -> float:
    """``value`` as a number in its range. Raises ``InputError`` with one sentence."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        result = float("nan")
    if not low <= result <= high or (whole and result != int(result)):
        raise InputError("range", name=name, value=repr(value)[:40], low=low, high=high)
    return int(result) if whole else result


def order(
    values: Mapping[str, Any], settings: Mapping[str, Any], turns: Sequence[Turn], longest: int = LONGEST
) -> Order:
    """An order from form values by name: ``prompt``, ``mode`` (single, chat, raw), ``drafter``,
    ``temperature``, ``top_p``, ``top_k``, ``seed``, ``length``, ``rule``. ``settings`` are the
    drafter's own controls, ``turns`` the conversation so far. Raises ``InputError``."""
    rule = values.get("rule", "exact")
    if rule not in RULES:
        raise InputError("acceptance", name=repr(rule)[:40])
    prompt = values.get("prompt") or ""
    size = int(number("size", values.get("size") or len(prompt), 0, 1e12))
    if size > MAX_CHARACTERS:  # the page sent only its beginning
        raise InputError("prompt_too_large", size=size, limit=MAX_CHARACTERS)
    params = SamplingParams(
        temperature=number("temperature", values.get("temperature"), 0.0, 5.0),
        top_p=number("top_p", values.get("top_p"), 0.01, 1.0),
        top_k=int(number("top_k", values.get("top_k", 0), 0, 1_000_000, whole=True)),
        seed=int(number("seed", values.get("seed"), 0, 2**53, whole=True)),
        max_new_tokens=int(number("max_new_tokens", values.get("length"), 1, longest, whole=True)),
    )
    chosen = str(values.get("drafter"))
    chat = values.get("mode") == "chat" and bool(turns)
    return Order(
        prompt=[*turns, {"role": "user", "content": prompt}] if chat else prompt,
        drafter=drafter_name(chosen),
        draft="target" if chosen.endswith(ITSELF) else "",
        settings=dict(settings),
        params=params,
        rule=rule,
        raw=values.get("mode") == "raw",
        server=str(values.get("engine") or ""),
    )


def from_link(query: str, known: Iterable[str]) -> dict[str, Any]:
    """Form values of a shared link, by field name or ``drafter.control``; what is unknown, too long
    or out of range is left out."""
    try:
        parsed = parse_qs(query, max_num_fields=60)
    except ValueError:
        return {}
    wanted = set(known) & set(parsed)
    values = {name: _linked(name, parsed[name][0]) for name in wanted}
    return {name: value for name, value in values.items() if value is not None}


_NUMBERS: dict[str, tuple[float, float, bool]] = {
    "temperature": (0, 2, False),
    "top_p": (0.05, 1, False),
    "top_k": (0, 1_000_000, True),
    "seed": (0, 2**53, True),
    "length": (1, LONGEST, True),
}


def _linked(name: str, text: str) -> Any:
    """A linked value with its type; None when it cannot stand in the form."""
    choices = {
        "drafter": [value for _, value in drafter_choices()],
        "mode": ["single", "chat", "raw"],
        "baseline": ["before", "after", "off"],
        "rule": list(RULES),
    }
    if name == "prompt":
        return text[:20_000]
    if name in choices:
        return text if text in choices[name] else None
    drafter, _, control = name.partition(".")
    try:
        if name in _NUMBERS:
            return number(name, text, *_NUMBERS[name])
        if control:
            default = control_fields()[drafter][control].default
            value = text == "true" if isinstance(default, bool) else type(default)(text)
            return drafters.check_settings(drafters.REGISTRY[drafter], {control: value})[control]
    except (InputError, ValueError):
        return None
    return None


def drafter_choices() -> tuple[tuple[str, str], ...]:
    """Words keys and values of the drafters; ``draft_model@target`` drafts with the target itself."""
    choices = [(f"drafter_{name}", name) for name in drafters.REGISTRY]
    return (*choices, ("drafter_self", f"draft_model{ITSELF}"))


def drafter_name(choice: str) -> str:
    return str(choice).removesuffix(ITSELF)


def with_answer(call: Call, turns: Sequence[Turn]) -> list[Turn]:
    """The conversation after this question and the model's answer."""
    question, answer = call.values["prompt"], call.outcome["text"]
    return [*turns, {"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def control_fields() -> dict[str, dict[str, Any]]:
    """The controls of every drafter, from its dataclass fields."""
    return {name: drafters.controls(kind) for name, kind in drafters.REGISTRY.items()}

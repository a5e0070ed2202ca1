"""Gradio components from the page's data; with ``page.py`` the only file that imports gradio.

Every value that streams is one growing text of JSON lines in a hidden ``gr.HTML`` with a constant
template; the scripts in assets/js read it and draw. Model text never enters a template.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr

from .text import TEXTS, say, spoken
from .views.parts import Field

PLACE = '<div class="sd-view"></div>'
KINDS: dict[str, Any] = {"number": gr.Number, "slider": gr.Slider, "check": gr.Checkbox}


def mount_script(view: str) -> str:
    """Draws ``view`` in its place once the page's scripts are there."""
    job = f'(page) => page.mount(element.querySelector(".sd-view"), "{view}")'
    return f"(window.specdemoWaiting ??= []).push({job});"


def bus_script(name: str) -> str:
    """Hands the growing text to the page: at the start (``watch`` is silent then) and at each change."""
    hand = f'(window.specdemoWaiting ??= []).push((page) => page.bus(props.value, "{name}"))'
    return f'const hand = () => {hand}; watch("value", hand); hand();'


class Components:
    """Makes components and remembers which words each shows, for the change of language."""

    def __init__(self) -> None:
        self.words: list[tuple[Any, Callable[[str], dict[str, Any]]]] = []
        self.fields: dict[str, tuple[Field, Any]] = {}
        self.controls: dict[tuple[str, str], Any] = {}  # by drafter and name

    def word(self, component: Any, key: str, prop: str = "label") -> Any:
        """``component`` shows the sentence ``key`` as its ``prop``."""
        self.words.append((component, lambda lang: {prop: say(lang, key)}))
        return component

    def updates(self, lang: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """One update a component, all its words in ``lang``, in the order of ``worded``. ``values``
        of fields, by name, are set with it."""
        lang = spoken(lang)
        merged: dict[int, dict[str, Any]] = {}
        for component, words in self.words:
            merged.setdefault(id(component), {}).update(words(lang))
        for name, value in (values or {}).items():
            merged[id(self.named()[name])]["value"] = value
        return [gr.update(**merged[id(component)]) for component in self.worded]

    def named(self) -> dict[str, Any]:
        """Every component with a value of its own: fields by name, controls as ``drafter.name``."""
        controls = {f"{drafter}.{name}": c for (drafter, name), c in self.controls.items()}
        return {**{name: component for name, (_, component) in self.fields.items()}, **controls}

    def fill(self, values: Mapping[str, Any]) -> list[Any]:
        """Updates for all ``named`` components: the given values, the others as they are."""
        return [gr.update(value=values[n]) if n in values else gr.skip() for n in self.named()]

    @property
    def worded(self) -> list[Any]:
        return list({id(component): component for component, _ in self.words}.values())

    def bus(self, name: str) -> Any:
        return gr.HTML(
            "",
            html_template="<i hidden></i>",
            js_on_load=bus_script(name),
            elem_classes="sd-bus",
            elem_id=f"bus-{name}",
        )

    def view(self, name: str) -> Any:
        return gr.HTML(
            "",
            html_template=PLACE,
            js_on_load=mount_script(name),
            elem_id=f"view-{name}",
            apply_default_css=False,
        )

    def button(self, key: str, **options: Any) -> Any:
        settings = {"elem_id": f"do-{key.replace('_', '-')}", **options}
        button = gr.Button(say("en", key), **settings)
        return self.word(button, key, "value")

    def field(self, each: Field) -> Any:
        """The component of a field; its value goes with every action of its tab."""
        options = {"elem_id": f"field-{each.name}", "value": each.value, **each.options}
        component: Any
        if each.kind == "hidden":
            component = gr.Textbox(visible="hidden", elem_id=options["elem_id"])
        elif each.kind == "text":
            component = gr.Textbox(label=say("en", each.label), **options)
            hint = f"{each.label}_placeholder"
            if hint in TEXTS["en"]:
                self.word(component, hint, "placeholder")
        elif each.kind == "choice":
            label = say("en", each.label)
            component = gr.Dropdown(self.choices(each, "en"), label=label, filterable=False, **options)
            self.words.append((component, lambda lang: {"choices": self.choices(each, lang)}))
        else:
            component = KINDS[each.kind](label=say("en", each.label), **options)
        if each.kind != "hidden":
            self.word(component, each.label)
        self.fields[each.name] = (each, component)
        return component

    @staticmethod
    def choices(each: Field, lang: str) -> list[tuple[str, Any]]:
        """Choices as Gradio wants them; a label that is no words key (a model's name) stays."""
        table = TEXTS[lang]
        return [(table.get(key, key), value) for key, value in each.choices]

    def control(self, drafter: str, name: str, each: Any, visible: bool) -> Any:
        """A drafter's control, from its dataclass field."""
        key, meta = f"control_{name}", each.metadata
        label = say("en", key) if key in TEXTS["en"] else name
        options: dict[str, Any] = {
            "label": label,
            "value": each.default,
            "visible": visible,
            "elem_id": f"control-{drafter}-{name}",
        }
        component: Any
        if isinstance(each.default, bool):
            component = gr.Checkbox(**options)
        elif isinstance(each.default, str):
            component = gr.Textbox(**options)
        else:
            component = gr.Slider(meta["low"], meta["high"], step=meta["step"], **options)
        self.controls[drafter, name] = component
        # Every control is worded, one without a sentence by its own name: see ``updates``.
        if key in TEXTS["en"]:
            return self.word(component, key)
        self.words.append((component, lambda lang: {"label": name}))
        return component

"""The page: what stands where, which press does what, and how it is launched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from starlette.middleware import Middleware

from ..errors import InputError
from ..hosting import api
from ..hosting.guard import app_parts
from . import scripts
from .backend import Backend
from .components import Components, gr
from .text import LANGUAGES, TEXTS, preferred, say, say_error, spoken
from .views import files, form, live_tab, tabs
from .views.bus import Bus
from .views.live import Sessions
from .views.parts import Action, Call, Field, Tab
from .views.presets import PRESETS
from .web import HeadFirst, routes

QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
DEFAULT_DRAFTER = "ngram"
LENGTHS = ("gamma", "depth")  # the controls that everybody needs; the others fold away


class Page:
    """Builds the Blocks and holds what its handlers share."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.sessions = Sessions()
        self.make = Components()
        self.actions: list[tuple[Action, str, list[Any]]] = []
        self.stops: list[Any] = []

    def build(self) -> gr.Blocks:
        make = self.make
        with gr.Blocks(title="specdemo", analytics_enabled=False, fill_width=True) as demo:
            self.lang, self.turns = gr.State("en"), gr.State([])
            later = tabs.tabs_for(self.backend.servers.values())
            self.buses = {name: make.bus(name) for name in ("live", *(tab.name for tab in later))}
            make.view("header")
            self.language = gr.Radio(
                list(LANGUAGES), value="en", show_label=False, container=False, elem_id="language"
            )
            with gr.Tabs(elem_id="tabs"):
                self._tab("live", self._live)
                for tab in later:
                    item = self._tab(tab.name, partial(self._other, tab))
                    if tab.on_select:
                        self.actions.append((tab.on_select, tab.name, [item.select]))
            self._events(demo)
            api.add(self.backend, self.sessions)
        return demo

    def _tab(self, name: str, fill: Callable[[], None]) -> Any:
        with gr.Tab(say("en", f"tab_{name}"), id=name, render_children=name == "live") as item:
            self.make.word(item, f"tab_{name}")
            fill()
        return item

    def _live(self) -> None:
        make = self.make
        with gr.Column(elem_id="form"):
            make.field(Field("prompt", "text", "", options={"lines": 2, "max_lines": 8}))
            with gr.Row(elem_id="examples"):
                self.examples = [(p, make.button(f"example_{p.key}", size="sm")) for p in PRESETS]
            with gr.Row(elem_classes="sd-fields"):
                if self.backend.servers:
                    names = [(server.name, server.name) for server in self.backend.servers.values()]
                    engines = (("engine_local", ""), *names)
                    make.field(Field("engine", "choice", "", choices=engines))
                make.field(Field("drafter", "choice", DEFAULT_DRAFTER, choices=form.drafter_choices()))
                self._controls(lambda name: name in LENGTHS)
                for each in live_tab.main_fields(self.backend.config.max_output):
                    make.field(each)
            with (
                gr.Accordion(say("en", "settings"), open=False, elem_id="more") as more,
                gr.Row(elem_classes="sd-fields"),
            ):
                self._controls(lambda name: name not in LENGTHS)
                for each in live_tab.MORE_FIELDS:
                    make.field(each)
            make.word(more, "settings")
            with gr.Row(elem_id="buttons"):
                run = make.button("run", variant="primary", scale=0)
                prompt = make.fields["prompt"][1]
                self.actions.append((live_tab.RUN, "live", [run.click, prompt.submit]))
                self.stops.append(make.button("stop", scale=0))
                self.new_chat = make.button("new_chat", scale=0, visible=False)
                self.share = make.button("share", scale=0)
                if self.backend.config.recordings:
                    self._upload("open_file", files.opened, "live")
        make.view("live")

    def _controls(self, wanted: Callable[[str], bool]) -> None:
        """The drafters' own controls; those of the chosen drafter are visible."""
        for drafter, controls in form.control_fields().items():
            for name, each in controls.items():
                if wanted(name):
                    self.make.control(drafter, name, each, drafter == DEFAULT_DRAFTER)

    def _other(self, tab: Tab) -> None:
        make = self.make
        if tab.fields:
            with gr.Row(elem_classes="sd-fields"):
                for each in tab.fields:
                    make.field(each)
        if tab.actions:
            with gr.Row(elem_classes="sd-actions"):
                for action in tab.actions:
                    look = "primary" if action.primary else "secondary"
                    button = make.button(action.key, scale=0, variant=look)
                    self.actions.append((action, action.bus or tab.name, [button.click]))
                self.stops.append(make.button("stop", scale=0, elem_id=f"do-stop-{tab.name}"))
                if tab.upload and self.backend.config.recordings:
                    self._upload("open_second", files.added, tab.name)
        make.view(tab.name)

    def _upload(self, key: str, read: Callable[[str, str], str], bus: str) -> None:
        elem_id = f"do-{key.replace('_', '-')}"
        types = [".jsonl", ".html"]
        button = gr.UploadButton(say("en", key), scale=0, file_types=types, elem_id=elem_id)
        self.make.word(button, key)
        button.upload(read, [button, self.lang], self.buses[bus], **QUIET)

    def _events(self, demo: gr.Blocks) -> None:
        # Gradio's scripts look at every component that ever had a progress bar, at each update of a
        # stream; an event that changes all words gives them to one only.
        many = {**QUIET, "show_progress_on": self.buses["live"]}
        fields = self.make.fields
        drafter, mode = fields["drafter"][1], fields["mode"][1]
        inputs = [self.lang, self.turns, *(c for _, c in fields.values()), *self.make.controls.values()]
        for action, bus, triggers in self.actions:
            gr.on(
                triggers,
                self._handler(action),
                inputs,
                [self.buses[bus], self.turns],
                js=scripts.from_page({name: each.from_page for name, (each, _) in fields.items()}),
                concurrency_id="device",
                # Runs wait in the worker, which tells them their place.
                concurrency_limit=self.backend.config.queue,
                # A press while the last one's stream still closes counts too; the new run ends the old.
                trigger_mode="multiple",
                **QUIET,
            )
        for stop in self.stops:
            # Through the queue like every event: the guard knows no other way in.
            stop.click(self._stop, None, None, concurrency_limit=None, **QUIET)
        demo.unload(self._stop)
        drafter.change(self._show_controls, drafter, list(self.make.controls.values()), **many)
        mode.change(lambda m: gr.update(visible=m == "chat"), mode, self.new_chat, **QUIET)
        self.new_chat.click(lambda: [], None, self.turns, **QUIET)
        named = self.make.named()
        for preset, button in self.examples:
            chosen = {"prompt": preset.prompt, "mode": "single", **preset.values}
            button.click(partial(self.make.fill, chosen), None, list(named.values()), **many)
        self.share.click(None, list(named.values()), None, js=scripts.share(list(named)), **QUIET)
        self.language.input(
            lambda lang: [spoken(lang), *self.make.updates(lang)],
            self.language,
            [self.lang, *self.make.worded],
            js=scripts.tell_language("lang"),
            **many,
        )
        arrived = demo.load(self._arrive, None, [self.language, self.lang, *self.make.worded], **many)
        arrived.then(None, self.language, None, js=scripts.tell_language("[]"), **QUIET)

    def _handler(self, action: Action) -> Any:
        names, count = list(self.make.fields), len(self.make.fields)

        async def handle(
            request: gr.Request, lang: str, turns: list[Any], *rest: Any
        ) -> AsyncIterator[Any]:
            values = dict(zip(names, rest[:count], strict=True))
            chosen = form.drafter_name(values["drafter"])
            settings = {
                name: value
                for (drafter, name), value in zip(self.make.controls, rest[count:], strict=True)
                if drafter == chosen
            }
            session = request.session_hash or ""
            call = Call(values, settings, session, lang, self.backend, self.sessions, list(turns))
            text = ""
            try:
                self.backend.admit(request)
            except InputError as error:
                yield Bus([]).error(say_error(lang, error)).text, gr.skip()
                return
            self.sessions.stop(session)  # a visitor has one run at a time: the new one ends the old
            async for text in action.run(call):
                yield text, gr.skip()
            if values["mode"] == "chat" and "text" in call.outcome:
                yield text, form.with_answer(call, turns)

        return handle

    def _speak(self, lang: Any) -> list[Any]:
        lang = lang if lang in list(TEXTS) else "en"  # by HTTP anything may come
        return [lang, *self.make.updates(lang)]

    def _stop(self, request: gr.Request) -> None:
        self.sessions.stop(request.session_hash or "")

    def _show_controls(self, drafter: str) -> list[Any]:
        chosen = form.drafter_name(drafter)
        return [gr.update(visible=name == chosen) for name, _ in self.make.controls]

    def _arrive(self, request: gr.Request) -> list[Any]:
        """What a fresh page shows: the reader's language, and the values of a shared link."""
        query = str(request.query_params)
        asked = request.query_params.get("lang")
        usual = self.backend.config.lang
        if usual not in TEXTS:
            usual = preferred(request.headers.get("accept-language"))
        lang = asked if asked in TEXTS else usual
        values = form.from_link(query, self.make.named())
        return [lang, lang, *self.make.updates(lang, values)]


def launch(backend: Backend, **options: Any) -> gr.Blocks:
    """Serve the page. ``options`` go to Gradio's ``launch`` and may override what is set here."""
    demo = Page(backend).build()
    demo.queue(max_size=backend.config.queue)
    settings: dict[str, Any] = {
        "share": False,
        "ssr_mode": False,
        "quiet": True,
        "show_error": False,
        # Else Gradio asks its own page within three seconds, and gives up on a busy machine.
        "_frontend": False,
        "run_history": False,
        # Gradio keeps a copy of the page's configuration for each session, 0.2 MB, and by default 10000.
        "state_session_capacity": 2 * backend.config.queue,
        "footer_links": [],
        "max_file_size": files.MAX_BYTES,
        "theme": gr.themes.Base(
            font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
        ),
    }
    app = app_parts(backend, routes(backend.status)) | options.pop("app_kwargs", {})
    app["middleware"] = [*app.get("middleware", []), Middleware(HeadFirst)]
    demo.launch(**{**settings, **options, "app_kwargs": app})
    return demo

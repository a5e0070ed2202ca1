"""What the page consists of, as data: fields, actions and tabs. ``page.py`` turns it into components."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ..backend import Backend
    from .live import Sessions

Kind = Literal["text", "number", "slider", "choice", "check", "hidden"]


@dataclass(frozen=True, slots=True)
class Field:
    """One value the reader sets. ``key`` names its label in the words (default: the name);
    ``choices`` are pairs (words key, value); ``from_page`` names a function of the page's scripts
    that gives the value when an action is sent."""

    name: str
    kind: Kind
    value: Any = None
    key: str = ""
    choices: tuple[tuple[str, Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    from_page: str = ""

    @property
    def label(self) -> str:
        return self.key or self.name


@dataclass(frozen=True, slots=True)
class Call:
    """One press of a button: all values by field name, the chosen drafter's controls, who asks."""

    values: Mapping[str, Any]
    settings: Mapping[str, Any]
    session: str
    lang: str
    backend: Backend
    sessions: Sessions
    turns: list[dict[str, str]]
    outcome: dict[str, Any] = field(default_factory=dict)


Run = Callable[[Call], AsyncIterator[str]]


@dataclass(frozen=True, slots=True)
class Action:
    """A button. ``run`` yields the growing text of JSON lines for the page; ``key`` its words; ``bus``
    the feed it goes to, the tab's own when empty."""

    key: str
    run: Run
    primary: bool = False
    bus: str = ""


@dataclass(frozen=True, slots=True)
class Tab:
    """``name`` is the view's name in the scripts; ``tab_<name>`` its words. ``on_select``: an action
    that also happens when the tab is opened; ``upload``: takes recordings to compare."""

    name: str
    fields: Sequence[Field] = ()
    actions: Sequence[Action] = ()
    on_select: Action | None = None
    upload: bool = False

"""The tabs after Live, in order."""

from __future__ import annotations

from collections.abc import Collection

from ...remote import Server
from . import compare, load, lossless, why
from .parts import Tab

TABS: tuple[Tab, ...] = (Tab("round"), lossless.TAB, why.TAB, compare.TAB, Tab("learn"))


def tabs_for(servers: Collection[Server]) -> tuple[Tab, ...]:
    """``TABS``; where there are serving engines, also what filling one does."""
    return (*TABS[:-1], load.tab(servers), TABS[-1]) if servers else TABS

"""The tabs after Live, in order."""

from __future__ import annotations

from . import compare, lossless, why
from .parts import Tab

TABS: tuple[Tab, ...] = (Tab("round"), lossless.TAB, why.TAB, compare.TAB, Tab("learn"))

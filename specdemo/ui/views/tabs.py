"""The tabs after Live, in order."""

from __future__ import annotations

from .parts import Tab

TABS: tuple[Tab, ...] = (Tab("round"), Tab("lossless"), Tab("why"), Tab("compare"), Tab("learn"))

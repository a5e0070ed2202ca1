"""Words of the other tabs."""

from __future__ import annotations

TABS: dict[str, str] = {}

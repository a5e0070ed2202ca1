"""Words of the lessons."""

from __future__ import annotations

LESSONS: dict[str, str] = {}

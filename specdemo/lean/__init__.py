"""The fast path for Llama-like models: one forward pass of few operations on a static cache.

Chosen by inspection of the loaded model (``supports``); every other model takes ``specdemo.hf``.
"""

from .pages import own_mappings
from .plan import supports
from .session import LeanSession
from .target import LeanTarget

__all__ = ["LeanSession", "LeanTarget", "own_mappings", "supports"]

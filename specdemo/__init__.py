"""specdemo: see speculative decoding happen, from real runs.

The engine (``engine``, ``target``, ``drafters``, ``verify``) knows nothing of the page;
the page (``ui``) knows nothing of tensors. Between them: the events of ``events``.
"""

__version__ = "0.1.0"

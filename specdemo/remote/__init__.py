"""Serving engines (vLLM, SGLang, llama.cpp, TensorRT-LLM) as sources of the same events.

No torch here. A new engine is one file with a client class and one line in ``REGISTRY``.
"""

from __future__ import annotations

from .client import CLIENTS as REGISTRY
from .failures import ServerError
from .generation import generate
from .llamacpp import LlamaCpp
from .servers import Server, configure, configured_servers, describe, find, parse_server
from .sglang import SGLang
from .summary import speedup
from .transport import Limits
from .trtllm import TensorRTLLM
from .vllm import VLLM

__all__ = [
    "REGISTRY",
    "VLLM",
    "Limits",
    "LlamaCpp",
    "SGLang",
    "Server",
    "ServerError",
    "TensorRTLLM",
    "configure",
    "configured_servers",
    "describe",
    "find",
    "generate",
    "parse_server",
    "speedup",
]

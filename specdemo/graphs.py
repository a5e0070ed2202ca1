"""CUDA graphs: a fixed sequence of kernels recorded once and started by one call.

At a few rows a GPU finishes a small model's kernels faster than Python can start them. A recorded
sequence reads and writes the same memory every time: inputs are copied into place before, results
copied out after. Where graphs cannot run (no CUDA, or a device lent call by call) nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Capture = Callable[[Callable[[], Any]], Callable[[], Any]]
WARM_UPS = 2


def record(run: Callable[[], Any]) -> Callable[[], Any]:
    """``run`` as a graph: the returned function replays it and gives the same result objects each
    time, filled anew. ``run`` must take its inputs from, and leave its results in, memory that stays
    where it is, must not synchronise, and must give the same when run again (it is, to warm up).

    If recording fails, ``run`` itself is returned: slower, not wrong."""
    if not torch.cuda.is_available() or torch.cuda.is_current_stream_capturing():
        return run
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # libraries set up their workspaces outside the recording
        for _ in range(WARM_UPS):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            result = run()
    except RuntimeError:
        torch.cuda.synchronize()
        return run

    def replay() -> Any:
        graph.replay()
        return result

    return replay

"""``LeanSession``: one generation's static cache and the passes over it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..proposal import depths, is_chain, tree_mask
from ..target import Session
from . import fast_pass
from .fast_pass import FastPass
from .pages import roomy
from .passes import Pass

if TYPE_CHECKING:
    from .target import LeanTarget

PREFILL_CHUNK = 128
SLACK = 64  # rows behind the capacity, for the rows that only fill a pass up
MOST_PASSES = 24
CHAIN_UNIT = 16  # rows of the head that a search through them takes at once


class Arena:
    """A cache of keys ``[layers, M, D, rows]`` and values ``[layers, M, rows, D]``, the rotations of
    its positions, and the passes made over it."""

    def __init__(self, target: LeanTarget, rows: int) -> None:
        plan, self.rows = target.plan, target.keys(rows)
        dtype = torch.float32 if target.device.type == "cpu" else target.weights.head.dtype
        dtype = torch.float16 if target.fast is not None else dtype
        shape = (plan.layers, plan.kv_heads, self.rows, plan.head_dim)
        with torch.inference_mode():
            self.values = roomy(torch.empty(shape, dtype=dtype, device=target.device)).zero_()
            # A GPU's attention reads keys row by row: the same shape, laid out the other way.
            keys = torch.empty_like(self.values).transpose(2, 3)
            if target.fast is not None:
                keys = torch.empty(fast_pass.keys_shape(*shape), dtype=dtype)
            elif target.device.type == "cpu":
                keys = torch.empty(keys.shape, dtype=dtype)
            self.keys = roomy(keys).zero_()
            self.turns = rotations(target.weights.frequencies, self.rows, target.weights.rope_scale)
        self.passes: OrderedDict[tuple[int, int], Pass | FastPass] = OrderedDict()
        self.recorded: dict[tuple[Any, ...], Callable[[], Any]] = {}
        self.chains: dict[tuple[int, int], Tensor] = {}

    def at(self, target: LeanTarget, width: int, length: int) -> Pass | FastPass:
        """The pass for ``width`` rows behind ``length`` cached ones."""
        keys = min(target.keys(length + width), self.rows)
        found = self.passes.get((width, keys))
        if found is None:
            caches = (self.keys, self.values)
            if target.fast is not None:
                found = FastPass(target.weights, target.fast, *caches, width, keys)
            else:
                found = Pass(target.weights, *caches, width, keys, target.score_rows())
            self.passes[width, keys] = found
            if len(self.passes) > MOST_PASSES:
                gone, _ = self.passes.popitem(last=False)
                self.recorded = {k: v for k, v in self.recorded.items() if k[:2] != gone}
        return found


class LeanSession(Session):
    """Rows of the cache behind ``length`` are scratch."""

    def __init__(self, target: LeanTarget, capacity: int, hidden_layers: Sequence[int]) -> None:
        self.target, self.capacity, self.length = target, capacity, 0
        self.hidden: dict[int, Tensor] = {}
        self._want = tuple(sorted(set(hidden_layers)))
        self._arena = target.arena(capacity + SLACK)

    @torch.inference_mode()
    def prefill(self, ids: Sequence[int]) -> None:
        self._check(len(ids))
        layers = self.target.plan.layers
        parts: dict[int, list[Tensor]] = {layer: [] for layer in self._want}
        for start in range(0, len(ids), PREFILL_CHUNK):
            chunk = ids[start : start + PREFILL_CHUNK]
            width = min(-(-len(chunk) // 16) * 16, PREFILL_CHUNK)
            self._run(chunk, range(-1, len(chunk) - 1), width, layers, self._want, logits=False)
            self.length += len(chunk)
            for layer, part in parts.items():
                part.append(self.hidden[layer])
        self.hidden = {layer: torch.cat(part) for layer, part in parts.items() if part}

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], parents: Sequence[int]) -> Tensor:
        self._check(len(tokens))
        width = self.target.width(len(tokens))
        logits = self._run(tokens, parents, width, self.target.plan.layers, self._want, logits=True)
        assert logits is not None
        return logits

    @torch.inference_mode()
    def early(self, tokens: Sequence[int], parents: Sequence[int], layers: int) -> Tensor:
        self._check(len(tokens))
        held = self.hidden
        logits = self._run(tokens, parents, self.target.width(len(tokens)), layers, (), logits=True)
        self.hidden = held
        assert logits is not None
        return logits

    @torch.inference_mode()
    def chain(
        self, tokens: Sequence[int], count: int, names: Tensor | None, columns: int, least: float = 0.0
    ) -> list[int] | None:
        """What this model itself would say greedily behind ``tokens``: at most ``count`` tokens, ended
        behind one whose probability is below ``least``; all but the last of them are kept in the cache,
        behind ``tokens``. One call into the compiled kernels, None where they do not run. ``names`` and
        ``columns``: which token a row of the head is, and how many rows count."""
        self._check(len(tokens) + count - 1)
        arena, behind = self._arena, self.length + len(tokens)
        first = arena.at(self.target, len(tokens), self.length)
        one = arena.at(self.target, 1, behind + max(count - 2, 0))  # keys enough for the last row
        if not isinstance(first, FastPass) or not isinstance(one, FastPass) or columns % CHAIN_UNIT:
            return None
        made = first.chain(one, tokens, self.length, arena.turns, names, columns, count, least)
        self.length = behind + len(made) - 1
        return made

    def keep(self, rows: Sequence[int]) -> None:
        moved = next((i for i, row in enumerate(rows) if i != row), len(rows))
        if moved < len(rows):  # those in front are in place already
            self._move(rows[moved:], self.length + moved)
        self.length += len(rows)

    @torch.inference_mode()
    def _move(self, rows: Sequence[int], to: int) -> None:
        """Copy rows of the last pass to those from ``to`` on."""
        keys, values = self._arena.keys, self._arena.values
        made = next(iter(self._arena.passes.values()))
        if isinstance(made, FastPass):
            made.move([self.length + row for row in rows], to)
            return
        index = torch.tensor(rows, device=keys.device) + self.length
        keys[..., to : to + len(rows)] = keys.index_select(3, index)
        values[:, :, to : to + len(rows)] = values.index_select(2, index)

    def crop(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"Cannot roll back to {length} rows of {self.length}.")
        self.length = length

    def close(self) -> None:
        arena = self.__dict__.pop("_arena", None)
        if arena is not None:
            self.target.release(arena)
        self.hidden = {}

    def _check(self, rows: int) -> None:
        if self.length + rows > self.capacity:
            raise ValueError(f"{self.length} + {rows} rows do not fit a cache of {self.capacity}.")

    def _run(
        self,
        tokens: Sequence[int],
        parents: Sequence[int],
        width: int,
        layers: int,
        want: tuple[int, ...],
        logits: bool,
    ) -> Tensor | None:
        arena, count = self._arena, len(tokens)
        fill = width - count
        positions = [self.length + depth for depth in depths(parents)]
        rows = [*tokens, *[tokens[-1]] * fill], [*positions, *[self.length] * fill]
        current = arena.at(self.target, width, self.length)
        if isinstance(current, FastPass):
            above = [*parents, *[-1] * fill]
            out, states = current.run(*rows, above, self.length, arena.turns, layers, want, logits)
        else:
            inputs = torch.tensor(rows).to(arena.keys.device, non_blocking=True)  # [2, T]
            current.place(inputs, self.length, self._block(parents, width), arena.turns)
            out, states = self._replayed(current, layers, want, logits)
        self.hidden = {layer: state[:count] for layer, state in states.items()}
        return None if out is None else out[:count]

    def _replayed(
        self, current: Pass, layers: int, want: tuple[int, ...], logits: bool
    ) -> tuple[Tensor | None, dict[int, Tensor]]:
        """``current`` run; where graphs are recorded, as a replay."""
        recorded, capture = self._arena.recorded, self.target.capture
        if capture is None or not logits:
            return current.run(layers, want, logits)
        key = (current.rows, current.keys, layers, want)
        if key not in recorded:
            recorded[key] = capture(lambda: current.run(layers, want, logits))
        out, states = recorded[key]()
        # A recorded pass fills the same tensors every time: what leaves it is a copy.
        return out.clone(), {layer: state.clone() for layer, state in states.items()}

    def _block(self, parents: Sequence[int], width: int) -> Tensor:
        """``[T, T]``: 0 where a row sees another row of the block, -inf elsewhere."""
        chains, chain = self._arena.chains, is_chain(parents)
        known = chains.get((len(parents), width)) if chain else None
        if known is not None:
            return known
        seen = torch.eye(width, dtype=torch.bool)
        seen[: len(parents), : len(parents)] = tree_mask(parents)
        block = torch.zeros(width, width).masked_fill_(~seen, -torch.inf)
        block = block.to(self._arena.turns.device, self._arena.keys.dtype)
        if chain:
            chains[len(parents), width] = block
        return block


def rotations(frequencies: Tensor, count: int, scale: float) -> Tensor:
    """``[count, D/2]`` complex64: the rotation of each pair at each position."""
    positions = torch.arange(count, dtype=torch.float32, device=frequencies.device)
    angles = torch.outer(positions, frequencies)
    return torch.polar(torch.full_like(angles, scale), angles)

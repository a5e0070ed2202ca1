"""How many positions have the same bits when verified in blocks as when decoded one by one.

For every prompt: plain greedy decoding, then the same tokens in chain blocks of several sizes, and as
the one path of a tree whose other branches lie between its rows.
"""

from __future__ import annotations

from typing import Any

import timing
import torch

from specdemo.loading import load_target
from specdemo.probe import probe
from specdemo.prompt import encode
from specdemo.target import Session

BLOCKS = (2, 4, 8, 16)


def plain(session: Session, ids: list[int], count: int) -> tuple[list[int], torch.Tensor]:
    tokens, rows = [ids[-1]], []
    for _ in range(count):
        rows.append(session.forward(tokens[-1:], [-1])[0].clone())
        session.keep([0])
        tokens.append(int(rows[-1].argmax()))
    return tokens[:-1], torch.stack(rows)


def chains(session: Session, tokens: list[int], size: int) -> torch.Tensor:
    rows = []
    for start in range(0, len(tokens), size):
        part = tokens[start : start + size]
        rows.append(session.forward(part, range(-1, len(part) - 1)))
        session.keep(range(len(part)))
    return torch.cat(rows)


def trees(session: Session, tokens: list[int], size: int = 4) -> torch.Tensor:
    """Each true row is followed by a wrong sibling: row 2i is the path's i-th."""
    rows = []
    for start in range(0, len(tokens), size):
        part = tokens[start : start + size]
        block = [t for token in part for t in (token, (token + 1) % 1000)]
        parents = [p for i in range(len(part)) for p in (2 * i - 2 if i else -1, 2 * i - 2 if i else -1)]
        path = [2 * i for i in range(len(part))]
        rows.append(session.forward(block, parents)[path])
        session.keep(path)
    return torch.cat(rows)


def main() -> None:
    args = timing.arguments(__doc__ or "", dtypes="q4,bf16", tokens=96)
    results: dict[str, Any] = {}
    if args.realtime:
        timing.priority(True)
    for dtype in args.dtypes.split(","):
        target = load_target(dtype=dtype, device="cpu")
        table: dict[str, dict[str, float]] = {}
        for prompt in timing.PROMPTS:
            ids = encode(target, prompt)
            session = target.open(len(ids) + args.tokens + 16)
            session.prefill(ids[:-1])
            tokens, alone = plain(session, ids, args.tokens)
            for size in (*BLOCKS, 0):
                session.crop(len(ids) - 1)
                found = chains(session, tokens, size) if size else trees(session, tokens)
                row = table.setdefault(
                    f"chain of {size}" if size else "tree",
                    {"equal": 0, "of": 0, "argmax": 0, "most": 0.0},
                )
                row["equal"] += int((found == alone).all(-1).sum())
                row["argmax"] += int((found.argmax(-1) == alone.argmax(-1)).sum())
                row["of"] += len(tokens)
                row["most"] = max(row["most"], float((found.float() - alone.float()).abs().max()))
            session.close()
        results[dtype] = {"probe": probe(target).plain(), "blocks": table}
    timing.finish(args, {"dtypes": results})


if __name__ == "__main__":
    main()

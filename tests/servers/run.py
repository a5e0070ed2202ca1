"""``make test-servers``: the clients against real servers on loopback, vLLM (CPU) and llama.cpp.

For every server: twenty prompts one after the other, whose inferred accepted tokens must equal the
server's own counters; the same with eight at once, where what happens is reported and the text must
stay whole; cancelling must reach the server. ``--only`` picks servers, ``--tokens`` shortens answers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from specdemo import embedded
from specdemo.events import Event, Finished, Verified
from specdemo.remote import Limits, Server, ServerError, generate, parse_server
from specdemo.remote.client import metrics_of
from specdemo.remote.load import PROMPTS, measure
from specdemo.sampling import SamplingParams

from . import llama, vllm

PATIENT = Limits(lookup=120, first=600, between=600)
HEAD = Path(__file__).parents[2] / "assets" / "heads" / "eagle3"
COUNTER = "spec_decode_num_accepted_tokens_total"
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}


def starters(out: Path, head: Path) -> dict[str, Callable[[], AbstractContextManager[str]]]:
    """How to start each server; nothing is installed before it is asked for."""

    def draft_config() -> dict[str, Any]:
        model = str(vllm.model_folder(embedded.ensure()))
        return {"method": "draft_model", "model": model, "num_speculative_tokens": 3}

    def start_vllm(name: str, config: Callable[[], dict[str, Any] | None]) -> Any:
        python, model = vllm.install(), vllm.model_folder(embedded.ensure())
        return vllm.running(python, model, config(), out / f"{name}.log")

    def eagle3_config() -> dict[str, Any]:
        return {"method": "eagle3", "model": str(head.resolve()), "num_speculative_tokens": 3}

    def start_llama(**options: str) -> Any:
        return llama.running(embedded.gguf_path(), slots="8", **options)

    return {
        "llamacpp-ngram": lambda: start_llama(spec="ngram"),
        "llamacpp-draft": lambda: start_llama(spec="draft", synth="2.5"),
        "vllm-ngram": lambda: start_vllm("vllm-ngram", lambda: NGRAM),
        "vllm-draft": lambda: start_vllm("vllm-draft", draft_config),
    } | (
        {"vllm-eagle3": lambda: start_vllm("vllm-eagle3", eagle3_config)}
        if (head / "config.json").exists()
        else {}
    )


def counter(server: Server) -> int:
    return int(metrics_of(server, f"{server.kind}:", PATIENT)[COUNTER])


def run(server: Server, prompt: str, params: SamplingParams) -> tuple[list[Event], Finished]:
    events = list(generate(server, prompt, params, limits=PATIENT))
    assert isinstance(events[-1], Finished)
    return events, events[-1]


def sequential(server: Server, params: SamplingParams) -> dict[str, Any]:
    """Twenty prompts, one at a time."""
    before, inferred, hidden, outcomes = counter(server), 0, 0, []
    for prompt in PROMPTS:
        events, finished = run(server, prompt, params)
        tokens = [t for e in events if isinstance(e, Verified) for t in e.tokens]
        verdict = finished.summary["check"]
        inferred += sum(token.origin == "accepted" for token in tokens)
        hidden += verdict["hidden"]
        outcomes.append(verdict["outcome"])
        assert "".join(token.text for token in tokens) == finished.text
    told = counter(server) - before
    return {
        "prompts": len(PROMPTS),
        "inferred_accepted": inferred,
        "cut_off_by_the_end": hidden,
        "server_counter": told,
        "confirmed": outcomes.count("confirmed"),
        "passed": outcomes == ["confirmed"] * len(PROMPTS) and inferred + hidden == told,
    }


def at_once(server: Server, params: SamplingParams, level: int) -> dict[str, Any]:
    row = measure(server, PROMPTS, params, level, limits=PATIENT)
    return row | {"passed": row["failed"] == 0}


def cancelling(server: Server) -> dict[str, Any]:
    """Cancel in the middle of a long answer; the server must have nothing to do soon after."""
    cancel, params = threading.Event(), SamplingParams(max_new_tokens=900, ignore_eos=True)
    events, seen = [], 0
    for event in generate(server, "Tell me a story.", params, cancel=cancel, limits=PATIENT):
        events.append(event)
        seen += isinstance(event, Verified)
        if seen == 3:
            cancel.set()
    last, busy = events[-1], "num_requests_running" if server.kind == "vllm" else "requests_processing"
    assert isinstance(last, Finished)
    began = time.monotonic()
    while metrics_of(server, f"{server.kind}:", PATIENT)[busy] > 0 and time.monotonic() - began < 60:
        time.sleep(0.2)
    idle = metrics_of(server, f"{server.kind}:", PATIENT)[busy] == 0
    passed = last.reason == "cancelled" and len(last.token_ids) < 800 and idle
    return {"tokens": len(last.token_ids), "idle_after_s": time.monotonic() - began, "passed": passed}


def refusals(server: Server) -> dict[str, Any]:
    """A model that is not there and a prompt that is too long, in the server's own words."""
    sentences = []
    other = Server(server.name, server.kind, server.base_url, "no-such-model")
    for on, prompt in ((other, "Say hi."), (server, "word " * 6000)):
        with contextlib.suppress(ServerError):
            try:
                run(on, prompt, SamplingParams(max_new_tokens=4))
            except ServerError as error:
                sentences.append(str(error))
                raise
    return {"sentences": sentences, "passed": len(sentences) == 2}


def checks(server: Server, tokens: int, level: int) -> Iterator[tuple[str, dict[str, Any]]]:
    params = SamplingParams(max_new_tokens=tokens)
    run(server, "Warm up.", SamplingParams(max_new_tokens=8))  # the first request can stall a server
    yield "sequential", sequential(server, params)
    yield f"{level} at once", at_once(server, params, level)
    yield "cancelling", cancelling(server)
    yield "refusals", refusals(server)


def main() -> int:
    parser = argparse.ArgumentParser(description="The clients against real servers on loopback.")
    parser.add_argument("--only", action="append", metavar="NAME", help="default: all servers")
    parser.add_argument("--tokens", type=int, default=32, help="a prompt")
    parser.add_argument("--head", type=Path, default=HEAD, help="EAGLE-3 head for vLLM, if it is there")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("out/test-servers"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for name, start in starters(args.out, args.head).items():
        if args.only and name not in args.only:
            continue
        print(f"{name}:", flush=True)
        results[name] = {}
        with start() as url:
            server = parse_server(f"{name}={url},kind={name.partition('-')[0]}", {})
            for title, result in checks(server, args.tokens, args.at_once):
                results[name][title] = result
                print(f"  {title}: {json.dumps(result)}", flush=True)
    (args.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    failed = [
        f"{name}, {t}" for name, rows in results.items() for t, r in rows.items() if not r["passed"]
    ]
    print("failed: " + "; ".join(failed) if failed else "all passed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())

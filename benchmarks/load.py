"""A full lecture hall: 32 visitors at once, half of them leave in mid-stream.

    python benchmarks/load.py [--visitors 32] [--tokens 48]

Every run is first made alone, for reference. Then all visitors start together: 16 wait for their
answer, 8 press Stop, 8 close the tab (their connection breaks). Checked: each finished run equals the
same run alone; every state that anybody saw is a beginning of his own run; afterwards no run, thread
or place in the queue is left. Exit code 1 when a check fails. Writes ``assets/results/load.json``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
from gradio_client import Client
from served_app import App, app, one_run, write

TOPICS = ("a lighthouse", "a fox", "the sea", "a radio", "bread", "the moon", "a train", "a library")


@dataclass
class Visitor:
    number: int
    kind: str  # stays, stops, leaves
    prompt: str
    drafter: str
    states: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    error: str = ""


def visitors(count: int) -> list[Visitor]:
    kinds = ("stays", "stops", "stays", "leaves")
    return [
        Visitor(
            n,
            kinds[n % 4],
            f"Write sentence number {n} about {TOPICS[n % len(TOPICS)]}, then say it again.",
            ("ngram", "none")[n // 4 % 2],
        )
        for n in range(count)
    ]


def stays_or_stops(url: str, who: Visitor, tokens: int, together: threading.Barrier) -> None:
    client = Client(url, verbose=False)
    together.wait()
    began = time.monotonic()
    job = client.submit(who.prompt, who.drafter, tokens, 0.0, 0, {}, api_name="/generate")
    if who.kind == "stops":
        while not job.done() and not any(s["token_ids"] for s in job.outputs()):
            time.sleep(0.02)
        job.cancel()
    else:
        job.result(timeout=600)
    who.states = list(job.outputs())
    who.seconds = time.monotonic() - began


def leaves(url: str, who: Visitor, tokens: int, together: threading.Barrier) -> None:
    """As a closed tab: the connection breaks while tokens come."""
    session = f"tab-{who.number}"
    index = next(
        d["id"]
        for d in httpx.get(f"{url}/config", timeout=120).json()["dependencies"]
        if d["api_name"] == "generate"
    )
    together.wait()
    began = time.monotonic()
    data = [who.prompt, who.drafter, tokens, 0.0, 0, {}]
    body = {"data": data, "fn_index": index, "session_hash": session}
    httpx.post(f"{url}/gradio_api/queue/join", json=body, timeout=120).raise_for_status()
    address = f"{url}/gradio_api/queue/data?session_hash={session}"
    with httpx.stream("GET", address, timeout=600) as stream:
        for line in stream.iter_lines():
            if '"running"' in line:  # the first state in which it runs
                break
    who.seconds = time.monotonic() - began


def visit(url: str, who: Visitor, tokens: int, together: threading.Barrier) -> None:
    try:
        (leaves if who.kind == "leaves" else stays_or_stops)(url, who, tokens, together)
    except Exception as error:
        who.error = f"{type(error).__name__}: {error}"[:200]


def crowd(served: App, everybody: list[Visitor], tokens: int) -> float:
    """Everybody at once; seconds until the last one was through."""
    together = threading.Barrier(len(everybody) + 1)
    threads = [
        threading.Thread(target=visit, args=(served.url, who, tokens, together)) for who in everybody
    ]
    for thread in threads:
        thread.start()
    together.wait()
    began = time.monotonic()
    for thread in threads:
        thread.join()
    return time.monotonic() - began


def mistakes(everybody: list[Visitor], alone: dict[int, list[int]]) -> list[str]:
    found = []
    for who in everybody:
        if who.error:
            found.append(f"visitor {who.number}: {who.error}")
        for state in who.states:
            ids = state["token_ids"]
            if ids != alone[who.number][: len(ids)]:
                found.append(f"visitor {who.number} saw tokens that are not his")
        if who.kind == "stays" and (
            not who.states
            or who.states[-1]["state"] != "done"
            or who.states[-1]["token_ids"] != alone[who.number]
        ):
            found.append(f"visitor {who.number}: not the run that he gets alone")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--visitors", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", default="0")
    options = parser.parse_args()
    everybody = visitors(options.visitors)
    flags = ("--rate", "10000", "--address-rate", "100000", "--dtype", options.dtype)
    with app(*flags, "--threads", options.threads) as served:
        began = time.monotonic()
        runs = {w.number: one_run(served.url, w.prompt, w.drafter, options.tokens) for w in everybody}
        alone_seconds = time.monotonic() - began
        alone = {number: final["token_ids"] for number, final in runs.items()}
        few = [Visitor(w.number, w.kind, w.prompt, w.drafter) for w in everybody[:4]]
        crowd(served, few, options.tokens)  # threads and sessions that come with the first visitors
        served.wait_until_idle()
        before = served.figures()
        seconds = crowd(served, everybody, options.tokens)
        idle_after = served.wait_until_idle()
        time.sleep(3)
        after = served.figures()
        found = mistakes([*everybody, *few], alone)
        status = httpx.get(f"{served.url}/specdemo/status.json", timeout=30).json()
    waits = [who.states[-1]["waited"] for who in everybody if who.kind == "stays" and not who.error]
    tokens = sum(len(who.states[-1]["token_ids"]) for who in everybody if who.states)
    result = {
        "what": "visitors at once on one machine, client and server sharing its processor",
        "model": {name: status[name] for name in ("model", "device", "dtype")},
        "visitors": {
            kind: sum(who.kind == kind for who in everybody) for kind in ("stays", "stops", "leaves")
        },
        "tokens_a_run": options.tokens,
        "alone_seconds_for_all": round(alone_seconds, 1),
        "crowd_seconds": round(seconds, 1),
        "tokens_seen_a_second": round(tokens / seconds, 1),
        "wait_seconds": {
            "median": round(statistics.median(waits), 1),
            "largest": round(max(waits), 1),
        },
        "idle_seconds_after_the_last": round(idle_after, 2),
        "before": before,
        "after": after,
        "mistakes": found,
    }
    write("load.json", result)
    left = after["threads"] - before["threads"]
    if found or after["waiting"] or after["running"] or left > 4:
        print("something is wrong or was left behind", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

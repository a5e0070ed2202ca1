"""Hugging Face Spaces: the checkout has what they need, and ZeroGPU's contract is kept.

No Space was used: the contract is simulated by ``fake_spaces``, after the source of ``spaces``.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_spaces
import pytest
from helpers import target_of
from hosted import Hosted, until

from specdemo.config import Config
from specdemo.engine import Engine
from specdemo.errors import InputError
from specdemo.events import Drafted, Finished, Started, Verified
from specdemo.hosting import lent
from specdemo.hosting.check_space import check, front_matter, main, pinned
from specdemo.hosting.start import launch
from specdemo.hosting.zerogpu import LentBackend, seconds
from specdemo.lean import LeanTarget
from specdemo.sampling import SamplingParams
from specdemo.ui.backend import Order

ROOT = Path(__file__).resolve().parent.parent
README = """---
title: specdemo
emoji: x
colorFrom: blue
colorTo: green
sdk: gradio
sdk_version: 6.31.0
app_file: app.py
python_version: 3.12.12
license: apache-2.0
---

# specdemo
"""


# The checkout


def test_this_checkout_can_be_pushed() -> None:
    assert check(ROOT, "cpu") == []
    assert check(ROOT, "gpu") == []


def test_on_zerogpu_the_other_requirements_are_needed(tmp_path: Path) -> None:
    (wrong,) = check(ROOT, "zerogpu")
    assert "requirements-zerogpu.txt" in wrong
    usual = pinned((ROOT / "requirements.txt").read_text())
    other = pinned((ROOT / "requirements-zerogpu.txt").read_text())
    assert {name for name in usual if usual[name] != other[name]} == {"torch"} and len(usual) == len(
        other
    )
    shutil.copy(ROOT / "README.md", tmp_path)
    shutil.copy(ROOT / "app.py", tmp_path)
    shutil.copy(ROOT / "requirements-zerogpu.txt", tmp_path / "requirements.txt")
    assert check(tmp_path, "zerogpu") == []


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text(README)
    (tmp_path / "app.py").write_text("")
    (tmp_path / "requirements.txt").write_text("gradio==6.31.0\ntorch==2.13.0\n")
    assert check(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("---\ntitle", "title", "front matter block"),
        ("title: specdemo", "title: [", "front matter block"),
        ("sdk: gradio", "sdk: docker", "sdk must be gradio"),
        ("sdk_version: 6.31.0", "sdk_version: 6.30.0", "pins gradio 6.31.0"),
        ("sdk_version: 6.31.0", "sdk_version: 6.31", "whole version"),
        ("app_file: app.py", "app_file: main.py", "main.py"),
        ("python_version: 3.12.12", "python_version: 3.10", "too old"),
        ("python_version: 3.12.12\n", "", "too old"),
        ("colorTo: green", "colorTo: mauve", "colorTo must be"),
        ("license: apache-2.0\n", "", "lacks license"),
        ("emoji: x", "preload_from_hub: Qwen/Qwen3-0.6B\nemoji: x", "list of Hub ids"),
        ("emoji: x", f"short_description: {'x' * 61}\nemoji: x", "60 characters"),
    ],
)
def test_what_is_wrong_with_the_front_matter_is_said(
    checkout: Path, old: str, new: str, part: str
) -> None:
    (checkout / "README.md").write_text(README.replace(old, new))
    assert part in " ".join(check(checkout))
    assert main([str(checkout)]) == 1


def test_large_files_need_lfs_when_pushed_by_git(checkout: Path) -> None:
    (checkout / "head.safetensors").write_bytes(b"\0" * 11_000_000)
    assert check(checkout) == []  # `hf upload` sends them by itself
    (wrong,) = check(checkout, by="git")
    assert "head.safetensors has 11 MB" in wrong
    (checkout / ".gitattributes").write_text("*.safetensors filter=lfs diff=lfs merge=lfs -text\n")
    assert check(checkout, by="git") == []
    assert main([str(checkout)]) == 0


def test_secrets_and_old_versions_are_found(checkout: Path) -> None:
    (checkout / ".env").write_text("SPECDEMO_AUTH=x")
    assert "looks like a secret" in " ".join(check(checkout))
    (checkout / ".env").unlink()
    (checkout / "requirements.txt").write_text("gradio==6.31.0\ntorch==2.4.0\n")
    assert "older than" in " ".join(check(checkout))


def test_the_front_matter_of_this_readme_is_read() -> None:
    values = front_matter((ROOT / "README.md").read_text(encoding="utf-8"))
    assert values is not None and values["app_file"] == "app.py"


# ZeroGPU


@pytest.fixture
def lent_backend(tiny_llama: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[LentBackend]:
    monkeypatch.setitem(sys.modules, "spaces", fake_spaces)
    monkeypatch.setattr(fake_spaces, "calls", fake_spaces.Calls())
    config = Config(log="off")
    backend = LentBackend(config, (), lambda progress: Engine(target_of(tiny_llama)))
    assert backend.engine is None
    backend.start()
    assert backend.engine is not None, backend.message  # at once, in this thread, before any page
    yield backend
    backend.worker.close()


def order(length: int = 8, prompt: str = "The quick brown fox") -> Order:
    params = SamplingParams(max_new_tokens=length, ignore_eos=True)
    return Order(prompt, "ngram", {"gamma": 4}, params)


def test_orders_and_all_events_can_be_pickled(lent_backend: LentBackend) -> None:
    assert pickle.loads(pickle.dumps(order())) == order()
    events = list(lent_backend.generate(order()))
    assert [type(event) for event in events[:3]] == [Started, Drafted, Verified]
    assert pickle.loads(pickle.dumps(events)) == events


def test_a_run_in_the_forked_process_equals_the_run_here(
    lent_backend: LentBackend, tiny_llama: Any
) -> None:
    events = list(lent_backend.generate(order()))
    (process,) = fake_spaces.calls.processes
    assert process.pid not in (None, os.getpid()) and process.exitcode == 0
    assert isinstance(events[-1], Finished)
    here = [*super(LentBackend, lent_backend).events(order(), None)]
    assert events[-1].token_ids == here[-1].token_ids  # type: ignore[union-attr]


def test_the_duration_is_asked_for_by_length(lent_backend: LentBackend) -> None:
    list(lent_backend.generate(order(8)))
    list(lent_backend.generate(order(64)))
    short, long = fake_spaces.calls.durations
    assert (short, long) == (seconds(order(8)), seconds(order(64))) and 0 < short < long <= 120


def test_an_error_in_the_forked_process_keeps_its_sentence(lent_backend: LentBackend) -> None:
    with pytest.raises(InputError) as caught:
        list(lent_backend.generate(order(prompt="\ud800")))
    assert caught.value.key == "bad_character"


def test_any_other_error_is_one_sentence(lent_backend: LentBackend) -> None:
    engine = lent_backend.loaded()

    def breaks(*args: Any) -> Any:
        raise RuntimeError("secret details")

    engine.target.open = breaks  # type: ignore[method-assign]
    with pytest.raises(InputError) as caught:
        list(lent_backend.generate(order()))
    assert caught.value.key == "lent_gpu" and "secret" not in str(caught.value)


def test_stop_ends_the_forked_process_within_a_round(lent_backend: LentBackend) -> None:
    cancel = threading.Event()
    events = lent_backend.generate(order(400), cancel)
    for event in events:
        if isinstance(event, Verified):
            cancel.set()
            break
    rest = list(events)
    (process,) = fake_spaces.calls.processes
    assert rest == [] and process.exitcode == 0


def test_no_graphs_are_recorded(tiny_llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spaces", fake_spaces)
    target = LeanTarget(
        *tiny_llama,
        name="tiny",
        dtype_name="fp32",
        capture=lambda *_: pytest.fail(),
        keep_model=True,  # the model is every test's
    )
    backend = LentBackend(Config(log="off"), (), lambda progress: Engine(target))
    backend.start()
    assert backend.loaded().target is target and target.capture is None
    backend.worker.close()


def test_async_functions_are_refused_by_the_decorator() -> None:
    async def call() -> None: ...

    with pytest.raises(NotImplementedError):
        fake_spaces.GPU(call)


def test_the_page_on_a_lent_gpu(lent_backend: LentBackend) -> None:
    """From the endpoint to the forked process: the visitor's request is known where it is asked for."""
    demo = launch(lent_backend)
    try:
        page = Hosted(lent_backend, demo, demo.local_url.rstrip("/"), None)  # type: ignore[arg-type]
        client = page.client()
        arguments = ("The quick brown fox", "ngram", 8, 0.0, 0, {})
        final = client.predict(*arguments, api_name="/generate")
        assert final["state"] == "done" and final["token_ids"]
        assert fake_spaces.calls.requests[0] is not None
        until(lambda: not lent_backend.worker.busy)
    finally:
        demo.close(verbose=False)


def test_spaces_is_imported_first_and_only_there(tmp_path: Path) -> None:
    """``app.py`` imports ``spaces`` before torch on ZeroGPU and not at all elsewhere."""
    (tmp_path / "spaces.py").write_text(
        "import sys\nassert 'torch' not in sys.modules and 'gradio' not in sys.modules\nprint('spaces')"
    )
    code = "import app, sys; print('spaces' in sys.modules, 'torch' in sys.modules)"
    for value, told in (("true", "spaces\nTrue False"), ("", "False False")):
        env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "SPACES_ZERO_GPU": value}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, cwd=ROOT
        )
        assert done.stdout.strip() == told, done.stderr


def test_lent_reads_the_variable_of_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, is_lent in (("true", True), ("1", True), ("T", True), ("0", False), ("", False)):
        monkeypatch.setenv("SPACES_ZERO_GPU", value)
        assert lent() is is_lent

"""The GPU check rehearsed on a CPU with a tiny model: every part runs, and a wrong sampler is seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from specdemo import gpu_check, rows
from specdemo.gpu_check import Table, statistics
from specdemo.lean import LeanTarget


@pytest.fixture
def folder(tiny_llama: Any, tmp_path: Path) -> Path:
    tiny_llama[0].save_pretrained(tmp_path / "tiny")
    tiny_llama[1].save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def test_rehearsal(folder: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gpu_check, "PROMPTS", gpu_check.PROMPTS[:2])
    out = tmp_path / "out.json"
    options = ["--device", "cpu", "--model", str(folder), "--tokens", "8", "--runs", "40"]
    assert gpu_check.main([*options, "--json", str(out)]) == 0
    found = {row["what"]: row for row in json.loads(out.read_text())["rows"]}
    assert found["greedy fp32, ngram"]["same"] == 2
    assert found["sampling, early_exit"]["chance"] > gpu_check.ALPHA
    assert any(what.startswith("plain, ") and row["rate"] > 0 for what, row in found.items())
    assert "FAILED" not in capsys.readouterr().out


def test_no_gpu_is_one_sentence(folder: Path, capsys: Any) -> None:
    if torch.cuda.is_available():
        return
    assert gpu_check.main(["--model", str(folder)]) == 2
    assert "not available" in capsys.readouterr().err


def test_a_sampler_that_forgets_the_residual_fails(tiny_llama: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(rows.Dense, "residual", lambda self, token, q: self)
    target = LeanTarget(tiny_llama[0], tiny_llama[1], name="tiny", keep_model=True)
    table = Table()
    statistics(table, target, 400)
    assert table.failed

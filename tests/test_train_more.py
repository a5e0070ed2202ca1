"""What a corpus is written about, and trainings that go on from a published head."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from specdemo.__main__ import main
from specdemo.train import corpus, tasks
from specdemo.train.data import read_shard

TEXTS = ["one two three four five six seven eight nine ten " * 3, "alpha beta gamma delta " * 9]


@pytest.mark.parametrize("kind", tasks.KINDS)
def test_an_opening_is_of_its_kind(kind: str) -> None:
    pick = random.Random(0)
    openings = [tasks.open_turn(kind, pick, TEXTS) for _ in range(20)]
    assert len({opening.text for opening in openings}) > 5
    for opening in openings:
        words = len(opening.text.split())
        if kind == "summary":
            assert opening.more == 0 and words >= 120
            assert opening.text.startswith(tasks.SUMMARIES)
        elif kind == "question":
            assert opening.more > 0 and words >= 120
            assert opening.text.endswith(tasks.QUESTIONS)
        else:
            assert opening.more > 0 and words < 20


def words(text: str) -> str:
    return " ".join(corpus.typed(text).split())


def test_long_turns_quote_earlier_answers(
    tiny_llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "SUMMARISED", (4, 12))
    model, tokenizer = tiny_llama
    settings: dict[str, Any] = {"batch": 6, "longest": 90}
    corpus.write_corpus(model, tokenizer, tmp_path, 1_000, kinds=("free",), seed=1, **settings)
    texts = [
        text
        for path in sorted(tmp_path.glob("*.npz"))
        for text in corpus.answers_in(read_shard(path), tokenizer)
    ]
    assert texts
    have = sum(read_shard(path).tokens for path in tmp_path.glob("*.npz"))
    corpus.write_corpus(model, tokenizer, tmp_path, have + 1, kinds=("summary",), seed=2, **settings)
    (new,) = tmp_path.glob("s2_*.npz")
    for row in read_shard(new).rows:
        prompt = tokenizer.decode(row.ids[: row.response_start].tolist())
        assert any(start in prompt for start in tasks.SUMMARIES)
        assert any(words(text)[:20] in words(prompt) for text in texts)


@pytest.fixture(scope="module")
def folder(tiny_llama: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("train-more")
    for part in tiny_llama[:2]:
        part.save_pretrained(place / "model")
    common = ["--model", str(place / "model"), "--device", "cpu", "--dtype", "fp32"]
    corpus_, features = str(place / "corpus"), str(place / "features")
    written = ["--tokens", "3000", "--batch", "12", "--longest", "60", "--kinds", "free,translation"]
    assert main(["train", "corpus", *common, *written, "--out", corpus_]) == 0
    assert main(["train", "features", *common, "--corpus", corpus_, "--layers", "1,2,3",
                 "--out", features]) == 0  # fmt: skip
    return place


def _log(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("kind", "first", "again"),
    [
        ("eagle3", ["--draft-vocab", "200"], ["--draft-vocab", "220"]),
        ("draft-model", ["--hidden", "32", "--layers", "1"], ["--hidden", "32", "--layers", "1"]),
        ("medusa", ["--heads", "2"], ["--heads", "2"]),
    ],
)
def test_a_training_goes_on_from_a_published_head(
    kind: str, first: list[str], again: list[str], folder: Path
) -> None:
    common = ["--model", str(folder / "model"), "--device", "cpu"]
    common += ["--corpus", str(folder / "corpus"), "--features", str(folder / "features")]
    made, more = folder / f"{kind}-1", folder / f"{kind}-2"
    common += ["--tokens", "1500"]
    assert (
        main(["train", kind, *common, *first, "--out", str(made), "--export", str(made / "head")]) == 0
    )
    start = ["--start", str(made / "head")]
    assert main(["train", kind, *common, *again, *start, "--out", str(more)]) == 0
    name = "accuracies" if kind == "medusa" else "top1"
    ended, began = _log(made)[-1], next(x for x in _log(more) if name in x)
    assert began["seen"] == 0
    # The first look at it sees what the last one saw of the head it goes on from (bf16 lies between).
    was, now = (torch.tensor(x[name], dtype=torch.float64) for x in (ended, began))
    torch.testing.assert_close(now, was, atol=0.03, rtol=0.0)


def test_a_published_head_keeps_its_draft_vocabulary(folder: Path, tmp_path: Path) -> None:
    common = ["--model", str(folder / "model"), "--device", "cpu", "--draft-vocab", "60"]
    common += ["--corpus", str(folder / "corpus"), "--features", str(folder / "features")]
    common += ["--tokens", "300"]
    first, again = tmp_path / "first", tmp_path / "again"
    assert main(["train", "eagle3", *common, "--out", str(tmp_path / "a"), "--export", str(first)]) == 0
    tensors = load_file(first / "model.safetensors")
    known = tensors["t2d"].roll(3)  # tokens of another corpus
    kept = known.nonzero().flatten()
    assert not torch.equal(known, tensors["t2d"])
    tensors |= {"t2d": known, "d2t": (kept - torch.arange(len(kept))).to(tensors["d2t"].dtype)}
    save_file(tensors, first / "model.safetensors")
    how = ["--start", str(first), "--out", str(tmp_path / "b"), "--export", str(again)]
    assert main(["train", "eagle3", *common, *how]) == 0
    assert torch.equal(load_file(again / "model.safetensors")["t2d"], known)
    # Resumed, it has all it needs in its checkpoint, the vocabulary as well.
    (first / "model.safetensors").unlink()
    (again / "model.safetensors").unlink()
    assert main(["train", "eagle3", *common, "--tokens", "600", *how]) == 0
    made = load_file(again / "model.safetensors")
    assert torch.equal(made["t2d"], known) and torch.equal(made["d2t"], tensors["d2t"])
    rows = AutoModelForCausalLM.from_pretrained(folder / "model").get_output_embeddings().weight[kept]
    assert torch.equal(made["lm_head.weight"], rows.detach().to(made["lm_head.weight"].dtype))


@pytest.mark.parametrize("kind", ["eagle3", "medusa", "draft-model"])
@pytest.mark.parametrize("what", ["nothing", "no weights", "other sizes"])
def test_a_start_that_does_not_fit_is_one_sentence(
    kind: str, what: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = tmp_path / "start"
    if what != "nothing":
        start.mkdir()
        names = {"eagle3": "model", "medusa": "medusa_lm_head", "draft-model": "model"}
        file = start / f"{names[kind]}.safetensors"
        if what == "no weights":
            file.write_bytes(b"nothing of the kind")
        else:
            save_file({"fc.weight": torch.zeros(3, 3), "d2t": torch.zeros(5)}, file)
            (start / "config.json").write_text('{"model_type": "llama", "hidden_size": 3}')
    common = ["--model", str(folder / "model"), "--device", "cpu", "--tokens", "100"]
    common += ["--corpus", str(folder / "corpus"), "--features", str(folder / "features")]
    assert main(["train", kind, *common, "--out", str(tmp_path / "out"), "--start", str(start)]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("specdemo: The training cannot start:") and "start" in error


def test_an_unknown_kind_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "corpus", "--kinds", "free,poems"]) == 2
    error = capsys.readouterr().err.strip()
    assert "poems" in error and "translation" in error and "\n" not in error

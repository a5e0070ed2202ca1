"""Training on a tiny model, from its own corpus to published heads that draft for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import run, target_of

from specdemo import heads
from specdemo.__main__ import main
from specdemo.drafters import create
from specdemo.engine import Engine
from specdemo.hf import HFTarget
from specdemo.run import Run
from specdemo.sampling import SamplingParams
from specdemo.train import corpus, features
from specdemo.train.data import FeatureStore, read_shard
from specdemo.train.eagle3_batch import make_batch

GREEDY = SamplingParams(max_new_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tiny_llama: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model as a folder, with a corpus it wrote and features of it."""
    place = tmp_path_factory.mktemp("train")
    tiny_llama[0].save_pretrained(place / "model")
    tiny_llama[1].save_pretrained(place / "model")
    common = ["--model", str(place / "model"), "--device", "cpu", "--dtype", "fp32"]
    _train("corpus", *common, "--tokens", "5000", "--batch", "12", "--longest", "60",
           "--out", str(place / "corpus"))  # fmt: skip
    _train("features", *common, "--corpus", str(place / "corpus"), "--layers", "1,2,3",
           "--out", str(place / "features"))  # fmt: skip
    return place


def _train(*arguments: str) -> None:
    assert main(["train", *arguments]) == 0


def _arguments(folder: Path, kind: str) -> list[str]:
    return [
        *("--model", str(folder / "model"), "--device", "cpu"),
        *("--corpus", str(folder / "corpus"), "--features", str(folder / "features")),
        *("--out", str(folder / kind), "--export", str(folder / f"{kind}-head")),
    ]


def test_a_corpus_has_answers_that_the_target_wrote(folder: Path, tiny_llama: Any) -> None:
    paths = sorted((folder / "corpus").glob("*.npz"))
    assert sum(read_shard(path).tokens for path in paths) >= 5000
    greedy = [row for path in paths for row in read_shard(path).rows if row.greedy]
    sampled = [row for path in paths for row in read_shard(path).rows if not row.greedy]
    assert greedy and sampled
    model, tokenizer = tiny_llama
    for row in greedy[:5]:
        text = tokenizer.decode(row.ids[: row.response_start])
        assert text.startswith("<|im_start|>user\n") and text.endswith("<|im_start|>assistant\n")
        logits = model(row.ids[None]).logits[0]
        best = logits[row.response_start - 1 : -1].topk(2)
        wrote = row.ids[row.response_start :]
        tie = best.values[:, 0] - best.values[:, 1] < 1e-3
        assert bool(((best.indices[:, 0] == wrote) | tie).all())


def test_a_corpus_goes_on_where_it_stopped(folder: Path, tiny_llama: Any, tmp_path: Path) -> None:
    settings = {"tokens": 300, "batch": 4, "longest": 20}
    corpus.write_corpus(*tiny_llama, tmp_path, **settings)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.npz")}
    corpus.write_corpus(*tiny_llama, tmp_path, **{**settings, "tokens": 2000})
    after = {path.name: path.read_bytes() for path in tmp_path.glob("*.npz")}
    assert len(after) > len(before)
    assert all(after[name] == content for name, content in before.items())
    firsts = [read_shard(path).rows[0].ids.tolist() for path in sorted(tmp_path.glob("*.npz"))]
    assert len(set(map(tuple, firsts))) == len(firsts)  # every shard has a seed of its own


def test_features_are_the_models_hidden_states(folder: Path, tiny_llama: Any) -> None:
    store = FeatureStore(folder / "corpus", folder / "features")
    assert store.info.layers == (1, 2, 3, 4)
    for sample in (store.train[0], store.train[-1], store.held_out[0]):
        output = tiny_llama[0].model(sample.row.ids[None], output_hidden_states=True)
        for column, layer in enumerate(store.info.layers):
            expected = output.hidden_states[layer][0]
            got = torch.from_numpy(sample.features[:, column].copy()).float()
            torch.testing.assert_close(got, expected, rtol=2e-3, atol=2e-3)


def test_interrupted_features_are_completed_only(folder: Path, tiny_llama: Any, tmp_path: Path) -> None:
    paths = sorted((folder / "corpus").glob("*.npz"))
    first = features.extract(tiny_llama[0], "tiny", folder / "corpus", tmp_path, [1, 2, 3, 4])
    assert first == sum(read_shard(path).tokens for path in paths)
    (tmp_path / f"{paths[0].stem}.npy").unlink()
    again = features.extract(tiny_llama[0], "tiny", folder / "corpus", tmp_path, [1, 2, 3, 4])
    assert again == read_shard(paths[0]).tokens


def test_held_out_rows_do_not_depend_on_what_is_extracted(folder: Path, tmp_path: Path) -> None:
    whole = FeatureStore(folder / "corpus", folder / "features", held_out_every=5)
    for path in [
        folder / "features" / "features.json",
        *sorted((folder / "features").glob("*.npy"))[1:],
    ]:
        (tmp_path / path.name).symlink_to(path)
    part = FeatureStore(folder / "corpus", tmp_path, held_out_every=5)
    held = {tuple(s.row.ids.tolist()) for s in whole.held_out}
    assert len(part.held_out) < len(whole.held_out)
    assert {tuple(s.row.ids.tolist()) for s in part.held_out} <= held
    count = sum(len(read_shard(path).rows) for path in (folder / "corpus").glob("*.npz"))
    assert len(whole.train) + len(whole.held_out) == count


def test_a_batch_pairs_states_tokens_and_labels(folder: Path) -> None:
    store = FeatureStore(folder / "corpus", folder / "features")
    sample = store.train[0]
    batch = make_batch([sample, store.train[1]], [0, 1, 2], 3, 2, 0.25, torch.device("cpu"))
    ids, states = sample.row.ids, torch.from_numpy(sample.features.copy()).float()
    for t in (0, 3, len(ids) - 4):
        assert torch.equal(batch.features[0, t], states[t, :3].flatten())
        for step in (0, 1):
            assert int(batch.tokens(step)[0, t]) == int(ids[t + 1 + step])
            assert torch.equal(batch.labels(step)[0][0, t], states[t + 1 + step, 3])
    weight = batch.labels(0)[1][0]
    start = sample.row.response_start - 2
    assert set(weight[:start].tolist()) <= {0.25} and float(weight[start]) == 1.0


def _prompt(folder: Path, target: HFTarget) -> str:
    """The user's turn of a row the target wrote greedily."""
    rows = read_shard(sorted((folder / "corpus").glob("*.npz"))[0]).rows
    row = max(rows, key=lambda r: len(r.ids))
    text = target.tokenizer.decode(row.ids[: row.response_start])
    return "".join(c for c in text if c.isprintable() or c == "\n")  # a random model writes anything


def _with_head(target: HFTarget, name: str, head: Path, prompt: str, **settings: Any) -> Run:
    made = create(name, target, settings, head=str(head))
    return Run.of(Engine(target).generate(prompt, made, GREEDY, raw=True))


def test_eagle3_is_trained_resumed_published_and_drafts(
    folder: Path, tiny_llama: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ["--draft-vocab", "200", "--batch-tokens", "256", "--evaluate-every", "6000"]
    _train("eagle3", *_arguments(folder, "eagle3"), "--tokens", "12000", *size)
    _train("eagle3", *_arguments(folder, "eagle3"), "--tokens", "24000", *size)
    log = [json.loads(line) for line in (folder / "eagle3" / "log.jsonl").read_text().splitlines()]
    assert sum("event" in line for line in log) == 1  # the second run went on, it did not start anew
    figures = [line for line in log if "loss" in line]
    assert figures[-1]["seen"] >= 24000 and figures[-1]["loss"] < figures[0]["loss"]
    assert "Apache-2.0" in (folder / "eagle3-head" / "README.md").read_text()
    capsys.readouterr()
    target = target_of(tiny_llama)
    prompt = _prompt(folder, target)
    plain = run(target, "none", prompt, params=GREEDY, raw=True)
    for settings in ({}, {"adaptive": False, "budget": 12, "depth": 4}, {"chain": True, "depth": 4}):
        drafted = _with_head(target, "eagle3", folder / "eagle3-head", prompt, **settings)
        assert drafted.finished.token_ids == plain.finished.token_ids
    assert len(drafted.rounds[0].drafted.nodes) == 4  # the chain, as deep as asked for


def test_medusa_is_trained_published_and_drafts(folder: Path, tiny_llama: Any) -> None:
    size = ["--heads", "3", "--batch-tokens", "256", "--evaluate-every", "6000", "--rate", "3e-3"]
    _train("medusa", *_arguments(folder, "medusa"), "--tokens", "24000", *size)
    loaded = heads.load_medusa(str(folder / "medusa-head"), "tiny", target_of(tiny_llama).shape)
    assert len(loaded.accuracies) == 3 and len(loaded.accuracies[0]) == 10
    target = target_of(tiny_llama)
    prompt = _prompt(folder, target)
    plain = run(target, "none", prompt, params=GREEDY, raw=True)
    drafted = _with_head(target, "medusa", folder / "medusa-head", prompt, adaptive=False, budget=20)
    assert drafted.finished.token_ids == plain.finished.token_ids
    assert 1 <= len(drafted.rounds[0].drafted.nodes) <= 20


def test_a_draft_model_is_trained_published_and_drafts(folder: Path, tiny_llama: Any) -> None:
    size = ["--hidden", "32", "--layers", "1", "--batch-tokens", "256", "--evaluate-every", "12000"]
    _train("draft-model", *_arguments(folder, "draft_model"), "--tokens", "36000", *size)
    from specdemo.loading import load_target

    target = target_of(tiny_llama)
    draft = load_target(str(folder / "draft_model-head"), dtype="fp32", device="cpu")
    prompt = _prompt(folder, target)
    plain = run(target, "none", prompt, params=GREEDY, raw=True)
    made = create("draft_model", target, {}, draft=draft)
    drafted = Run.of(Engine(target).generate(prompt, made, GREEDY, raw=True))
    assert drafted.finished.token_ids == plain.finished.token_ids
    log = [json.loads(line) for line in (folder / "draft_model" / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in log if "loss" in line]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["eagle3", "--features", "nowhere", "--corpus", "nowhere"], "training cannot start"),
        (["features", "--corpus", "nowhere", "--layers", "1,2"], "no corpus shards"),
        (["features", "--corpus", "nowhere", "--layers", "one"], "--layers must be numbers"),
    ],
)
def test_bad_input_is_one_sentence(
    folder: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = ["--model", str(folder / "model"), "--device", "cpu", "--out", str(tmp_path / "out")]
    assert main(["train", *arguments, *model]) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_the_gpu_script_in_small(tiny_llama: Any, tmp_path: Path) -> None:
    """Every stage of ``make gpu-train``, the same code, tiny; a second call finds all of it done."""
    from specdemo import gpu_train

    report: dict[str, Any] = {}
    for _ in range(2):
        job = gpu_train.Job(*tiny_llama, out=tmp_path, minutes=5.0, small=True)
        gpu_train.run(job)
        report = json.loads((tmp_path / "report.json").read_text())
    assert list(report) == ["corpus", "features", "eagle3", "medusa", "draft_model"]
    assert all(stage["result"] != "stopped by its clock" for stage in report.values())
    assert report["features"]["result"] == 0  # nothing left to compute
    shape = target_of(tiny_llama).shape
    made = tmp_path / "heads"
    assert heads.load_eagle3(str(made / "eagle3"), "tiny", shape).layers == (1, 2, 3)
    assert len(heads.load_medusa(str(made / "medusa"), "tiny", shape).blocks) == 3
    assert (made / "draft_model" / "model.safetensors").is_file()
    assert all((made / kind / "README.md").is_file() for kind in ("eagle3", "medusa", "draft_model"))


def test_a_training_out_of_time_is_saved() -> None:
    from specdemo import gpu_train
    from specdemo.train.loop import Stopped

    trainer = _Endless()

    def tick(*_: Any) -> None:
        raise Stopped

    assert gpu_train.finish(trainer, tick) == {"figure": 1} and trainer.saved


class _Endless:
    saved = False

    def run(self, tick: Any) -> None:
        while True:
            tick()

    def save(self) -> None:
        self.saved = True

    def evaluate(self) -> dict[str, int]:
        return {"figure": 1}

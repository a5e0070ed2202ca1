"""The catalogue: consistent data, and visitors confined to what the host offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from specdemo import catalog, embedded
from specdemo.errors import InputError


def test_entries_refer_to_each_other() -> None:
    for key, model in catalog.MODELS.items():
        assert key == model.key
        for draft in model.drafts:
            assert catalog.MODELS[draft].family == model.family
            assert catalog.MODELS[draft].parameters < model.parameters
    for heads in catalog.HEADS.values():
        assert heads.target in catalog.MODELS
        assert heads.method in ("eagle3", "medusa")


def test_only_the_embedded_model_claims_to_have_been_run() -> None:
    run = [model.key for model in catalog.MODELS.values() if model.note != catalog.NOT_RUN]
    assert run == [catalog.DEFAULT]
    assert catalog.MODELS[catalog.DEFAULT].embedded
    assert catalog.DEFAULT == embedded.NAME
    assert all(heads.note == catalog.NOT_RUN for heads in catalog.HEADS.values())


def test_visitors_get_the_embedded_model_alone_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECDEMO_MODELS", raising=False)
    assert [model.key for model in catalog.offered()] == [catalog.DEFAULT]
    for name in ("smollm2-360m", "Qwen/Qwen3-8B", "../secret", "", "/"):
        with pytest.raises(InputError) as caught:
            catalog.choose(name)
        assert caught.value.key == "unknown_model"


def test_the_host_offers_more(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv(
        "SPECDEMO_MODELS", f"smollm2-1.7b, qwen/qwen3-8b ,,{tmp_path},someone/else,smollm2-135m"
    )
    keys = [model.key for model in catalog.offered()]
    assert keys == [catalog.DEFAULT, "smollm2-1.7b", "qwen3-8b", tmp_path.name, "someone/else"]
    assert catalog.choose(tmp_path.name).source == str(tmp_path)
    with pytest.raises(InputError) as caught:
        catalog.choose(str(tmp_path))
    assert str(tmp_path) not in str(caught.value).split("choose one of")[1]
    assert catalog.choose("someone/else").source == "someone/else"
    with pytest.raises(InputError):
        catalog.choose("vicuna-7b")
    # A draft must be offered too, not merely known.
    assert [model.key for model in catalog.drafts_for("smollm2-1.7b")] == [catalog.DEFAULT]
    assert catalog.drafts_for("qwen3-8b") == ()


def test_heads_are_found_by_key_and_by_hub_id() -> None:
    assert [heads.method for heads in catalog.heads_for("Qwen/Qwen3-8B")] == ["eagle3"]
    assert [heads.method for heads in catalog.heads_for("vicuna-7b")] == ["medusa"]
    assert catalog.heads_for(catalog.DEFAULT) == ()


def test_example_prompts_are_those_promised() -> None:
    prompts = {prompt.key: prompt.text for prompt in catalog.PROMPTS}
    assert list(prompts) == ["repeat", "copy", "edit_code", "translate", "story", "emoji"]
    assert "Every verse" in prompts["repeat"]
    assert "def " in prompts["edit_code"]
    assert any(ord(char) > 0xFFFF for char in prompts["emoji"])
    assert any("\u4e00" <= char <= "\u9fff" for char in prompts["emoji"])


def test_the_catalogue_loads_no_torch() -> None:
    code = (
        "import sys, specdemo.catalog; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0

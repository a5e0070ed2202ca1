"""Loading: folders like the Hub's, the embedded model, refusals in one sentence, equal tokenizers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from specdemo import cache, catalog, embedded, lean, loading, skeleton
from specdemo.errors import InputError

ROOT = Path(__file__).parent.parent


@pytest.fixture(params=["tiny_llama", "tiny_qwen3", "tiny_gpt2"])
def tiny(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return request.getfixturevalue(request.param)


def saved(pair: tuple[Any, Any], folder: Path) -> Path:
    model, tokenizer = pair
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def refused(key: str, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(InputError) as caught:
        loading.load_target(*args, **kwargs)
    assert caught.value.key == key, str(caught.value)
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence.endswith(".")
    return sentence


def test_a_local_folder_gives_the_models_own_logits(tiny: tuple[Any, Any], tmp_path: Path) -> None:
    model, tokenizer = tiny
    target = loading.load_target(str(saved(tiny, tmp_path / "tiny")), dtype="fp32", device="cpu")
    assert (target.name, target.dtype_name, target.device.type) == ("tiny", "fp32", "cpu")
    assert target.shape.vocab == model.config.vocab_size
    assert loading.same_tokenizer(target.tokenizer, tokenizer)
    ids = tokenizer("The quick brown fox 👍🏽")["input_ids"]
    session = target.open(64)
    session.prefill(ids[:-1])
    logits = session.forward(ids[-1:], [-1])
    with torch.inference_mode():
        expected = model(torch.tensor([ids])).logits[0, -1:]
    assert torch.allclose(logits, expected, atol=1e-4)


def test_bf16_is_loaded_in_bf16(tiny_llama: tuple[Any, Any], tmp_path: Path) -> None:
    target = loading.load_target(str(saved(tiny_llama, tmp_path / "tiny")), "bf16", "cpu")
    assert target.dtype_name == "bf16"
    assert target.embedding().dtype == torch.bfloat16


def test_weights_in_several_files(tiny_llama: tuple[Any, Any], tmp_path: Path) -> None:
    model, tokenizer = tiny_llama
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    tokenizer.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors.index.json").exists()
    target = loading.load_target(str(tmp_path), "fp32", "cpu")
    assert torch.equal(target.embedding(), model.get_input_embeddings().weight)


def test_the_embedded_model(embedded_folder: Path) -> None:
    target = loading.load_target(device="cpu")
    assert target.name == catalog.DEFAULT
    assert (target.shape.layers, target.shape.vocab, target.shape.context) == (30, 49152, 8192)
    tokenizer = target.tokenizer
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") in target.eos_ids
    assert tokenizer.convert_tokens_to_ids("<|endoftext|>") in target.eos_ids
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert text.startswith("<|im_start|>system\n") and text.endswith("<|im_start|>assistant\n")
    # As llama.cpp splits these texts with the same file.
    digits = [788, 216, 34, 32, 34, 36, 28, 216, 33, 34, 35, 36, 37, 3723, 1708, 1885, 38, 39]
    assert tokenizer("In 2024, 12345 items cost $67")["input_ids"] == digits
    assert tokenizer("  hello\n\n world\t\t")["input_ids"] == [216, 33662, 1116, 905, 1656]
    ids = tokenizer(text)["input_ids"]
    session = target.open(len(ids) + 16)
    session.prefill(ids[:-1])
    last, answer = ids[-1], []
    for _ in range(7):
        last = int(session.forward([last], [-1])[0].argmax())
        session.keep([0])
        answer.append(last)
    assert "Paris" in tokenizer.decode(answer)


def test_the_skeleton_holds_what_transformers_loads(tiny_tokenizer: Any, tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=len(tiny_tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=12,  # more than nine: the order by name is not the order by number
        num_attention_heads=4,
        num_key_value_heads=2,
        rope_theta=5000.0,
        tie_word_embeddings=True,
    )
    folder = saved((LlamaForCausalLM(config), tiny_tokenizer), tmp_path / "twelve")
    place = loading.Place("twelve", str(folder), True)
    whole = loading._model(place, "bf16", torch.device("cpu"))
    bare = skeleton.read(folder, torch.bfloat16, torch.device("cpu"))
    expected, found = whole.state_dict(), bare.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert torch.equal(whole.model.rotary_emb.inv_freq, bare.model.rotary_emb.inv_freq)
    for ours, theirs in zip(bare.model.layers, whole.model.layers, strict=True):
        assert torch.equal(ours.mlp.up_proj.weight, theirs.mlp.up_proj.weight)
        assert ours.self_attn.scaling == theirs.self_attn.scaling
    assert lean.plan.plan_of(bare) == lean.plan.plan_of(whole)
    late = skeleton.read(folder, torch.bfloat16, torch.device("cpu"), projections=False)
    for layer, known in zip(late.model.layers, whole.model.layers, strict=True):
        assert layer.mlp.up_proj.weight.numel() == 0
        layer.fill()
        for name, weight in known.state_dict().items():
            assert torch.equal(layer.state_dict()[name], weight)
    assert lean.plan.plan_of(late) == lean.plan.plan_of(whole)
    (folder / "config.json").write_text(json.dumps({**config.to_dict(), "model_type": "qwen3"}))
    assert skeleton.read(folder, torch.bfloat16, torch.device("cpu")) is None


def test_a_default_start_leaves_the_modelling_code_out(own_gguf: Path) -> None:
    embedded.ensure()
    code = (
        "import sys; from specdemo.loading import load_target; target = load_target(device='cpu')\n"
        "heavy = {'transformers.modeling_utils', 'torch._dynamo', 'torch.distributed.tensor'}\n"
        "sys.exit(f'{target.dtype_name} {sorted(heavy & set(sys.modules))}')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, cwd=ROOT
    )
    assert done.stderr.strip() == "q4 []"


def test_silent_damage_that_stops_loading_is_mended(own_gguf: Path) -> None:
    folder = embedded.ensure()
    config = folder / "config.json"
    stat, text = config.stat(), config.read_text()
    config.write_text("x" * len(text))
    os.utime(config, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    target = loading.load_target(dtype="fp32", device="cpu")
    assert target.shape.layers == 2
    assert config.read_text() == text
    assert (folder / cache.MANIFEST).exists()


def test_names_that_lead_nowhere() -> None:
    assert "could not be reached" in refused("model_not_found", "nobody/no-such-model")
    for name in ("/no/such/folder", "../up", "a b", "a/b/c", "<img src=x>", "http://host/x"):
        refused("model_not_found", name)


def test_a_model_in_the_hubs_cache_needs_no_network(tiny_llama: tuple[Any, Any], tmp_path: Path) -> None:
    snapshot = tmp_path / "models--some--tiny" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    saved(tiny_llama, snapshot)
    (tmp_path / "models--some--tiny" / "refs").mkdir()
    (tmp_path / "models--some--tiny" / "refs" / "main").write_text("abc")
    code = (
        "from specdemo.loading import load_target; from specdemo.errors import InputError\n"
        "print(load_target('some/tiny', 'fp32', 'cpu').name)\n"
        "try:\n    load_target('some/other')\nexcept InputError as error:\n    print(error.key)\n"
    )
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    environment |= {"HF_ENDPOINT": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=ROOT,
        env=environment,
    )
    assert done.stdout.split() == ["some/tiny", "model_not_found"], done.stderr


def test_device_and_dtype_are_checked_before_anything_is_loaded() -> None:
    refused("no_device", device="tpu")
    refused("dtype", dtype="fp8")
    if not torch.cuda.is_available():
        refused("no_device", device="cuda")


def test_q4_needs_a_file_with_4_bit_blocks(tiny_llama: tuple[Any, Any], tmp_path: Path) -> None:
    refused("dtype", str(saved(tiny_llama, tmp_path / "tiny")), dtype="q4", device="cpu")


def test_a_models_own_code_is_never_run(tiny_llama: tuple[Any, Any], tmp_path: Path) -> None:
    folder = saved(tiny_llama, tmp_path / "custom")
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "custom"
    config["auto_map"] = {
        "AutoConfig": "code.CustomConfig",
        "AutoModelForCausalLM": "code.CustomModel",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    assert "never run here" in refused("unsupported_model", str(folder))
    assert not (tmp_path / "ran").exists()


def test_folders_that_are_not_whole(tiny_llama: tuple[Any, Any], tmp_path: Path) -> None:
    whole = saved(tiny_llama, tmp_path / "whole")
    empty = tmp_path / "empty"
    empty.mkdir()
    refused("unsupported_model", str(empty))

    lacking = shutil.copytree(whole, tmp_path / "lacking")
    weights = load_file(lacking / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, lacking / "model.safetensors", metadata={"format": "pt"})
    assert "layers.1.mlp.up_proj" in refused("unsupported_model", str(lacking))

    broken = shutil.copytree(whole, tmp_path / "broken")
    data = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(data[: len(data) // 2])
    refused("unsupported_model", str(broken))

    other = shutil.copytree(whole, tmp_path / "other")
    (other / "config.json").write_text('{"model_type": "vit", "architectures": ["ViTModel"]}')
    refused("unsupported_model", str(other))

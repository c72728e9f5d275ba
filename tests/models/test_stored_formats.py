# SPDX-License-Identifier: Apache-2.0
"""Every format that a GGUF file may store: logits equal transformers' on the numbers it holds."""

from pathlib import Path

import gguf
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.models.hugging_face import logits_of, make_twin
from tests.models.rig import Rig
from tests.models.tiny import Arrays, blocks_of, llama_config, random_llama, write_gguf
from tokenlight import kernels
from tokenlight.checkpoint import STORED_FORMATS, open_checkpoint

PROMPT = [(7 * index) % 300 for index in range(40)]
MIXED = {
    "model.layers.0.self_attn.v_proj.weight": "q8_0",
    "model.layers.0.mlp.up_proj.weight": "f16",
    "model.layers.1.self_attn.k_proj.weight": "q4_0",
}
FORMATS = {**{name: {"*": name} for name in STORED_FORMATS}, "mixed": MIXED}


@pytest.fixture
def exact_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linears in float64, where the chosen kernels may round activations."""
    reference = [i for i in kernels.linear.implementations if i.backend == "reference"]
    monkeypatch.setattr(kernels.linear, "implementations", reference)


def make_pair(path: Path, formats: dict[str, str], *, tied: bool) -> tuple[Rig, PreTrainedModel]:
    """A llama stored as `formats` says, and transformers' on the same numbers."""
    config = llama_config(vocab_size=300, hidden_size=256, heads=4, kv_heads=2)
    state = random_llama(config, seed=8, tied=tied)
    by_name = {
        name: formats.get("*") or formats.get(name, "f32")
        for name, array in state.items()
        if array.ndim == 2
    }
    write_gguf(path, "llama", config, state, formats=by_name)
    return Rig(open_checkpoint(path)), make_twin("llama", config, as_read_back(state, by_name))


def as_read_back(state: Arrays, formats: dict[str, str]) -> Arrays:
    """What the numbers are once stored, by the gguf package's own arithmetic."""
    stored = {}
    for name, array in state.items():
        kind = gguf.GGMLQuantizationType[formats.get(name, "f32").upper()]
        stored[name] = gguf.quants.dequantize(blocks_of(array, kind), kind)
    return stored


def difference(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("formats", FORMATS.values(), ids=FORMATS)
@pytest.mark.usefixtures("exact_linear")
def test_stored_numbers_are_read_exactly(
    tmp_path: Path, formats: dict[str, str], tied: bool
) -> None:
    rig, twin = make_pair(tmp_path / "tiny.gguf", formats, tied=tied)
    theirs = logits_of(twin, PROMPT)
    assert float((rig.step({0: PROMPT})[0] - theirs).abs().max()) < 1e-4
    assert float(theirs.std()) > 1


@pytest.mark.parametrize("formats", FORMATS.values(), ids=FORMATS)
def test_the_chosen_kernels_are_near(tmp_path: Path, formats: dict[str, str]) -> None:
    rig, twin = make_pair(tmp_path / "tiny.gguf", formats, tied=True)
    assert difference(rig.step({0: PROMPT})[0], logits_of(twin, PROMPT)) < 0.001


def test_quantized_weights_stay_quantized(tmp_path: Path) -> None:
    """In memory about as large as in the file: a layout may pad a block by a few bytes."""
    for name in STORED_FORMATS:
        path = tmp_path / f"{name}.gguf"
        config = llama_config(vocab_size=300, hidden_size=256, heads=4, kv_heads=2)
        write_gguf(path, "llama", config, random_llama(config, seed=1, tied=True), format=name)
        checkpoint = open_checkpoint(path)
        rig = Rig(checkpoint)
        in_memory = sum(buffer.nbytes for buffer in rig.model.buffers())
        in_file = sum(entry.num_bytes for entry in checkpoint.tensors.values())
        frequencies = 4 * config["head_dim"] // 2
        assert in_file <= in_memory - frequencies < 1.05 * in_file, name
        assert all(buffer.dtype is not torch.float64 for buffer in rig.model.buffers())

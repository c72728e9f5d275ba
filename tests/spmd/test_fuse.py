# SPDX-License-Identifier: Apache-2.0
"""A pattern is applied where the target has a kernel for the whole, and gives the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.models.hugging_face import random_state
from tests.models.rig import Rig
from tests.models.test_every_model import VARIANTS
from tests.models.tiny import write_gguf
from tokenlight import kernels
from tokenlight.checkpoint import open_checkpoint
from tokenlight.kernels.contract import REFERENCE, Op

FUSED = (kernels.add_rms_norm, kernels.linear_silu_mul, kernels.rope_write_kv_)
AROUND_PRODUCTS = (kernels.linear_add, kernels.norm_linear, kernels.norm_linear_silu_mul)


@pytest.fixture
def only_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target without any kernel for a fused op."""
    for op in FUSED + AROUND_PRODUCTS:
        left = [i for i in op.implementations if i.rank == REFERENCE]
        monkeypatch.setattr(op, "implementations", left)


def with_kernel(monkeypatch: pytest.MonkeyPatch, op: Op) -> list[str]:
    """Rank the reference as a kernel; its calls are noted."""
    ran: list[str] = []
    reference = op.implementations[0].run

    def run(*args: object, **kwargs: object) -> object:
        ran.append(op.name)
        return reference(*args, **kwargs)

    op.implement("fused", device="cpu", rank=REFERENCE + 1)(run)
    return ran


def rig(tmp_path: Path, name: str) -> Rig:
    variant = VARIANTS[name]
    state = random_state(variant.model_type, variant.config, seed=3)
    path = tmp_path / "tiny.gguf"
    if not path.exists():
        write_gguf(path, variant.architecture, variant.config, state, tokenizer=False)
    return Rig(open_checkpoint(path))


def ops_of(made: Rig) -> list[str]:
    return [instruction.op.name for instruction in made.compiled.body.instructions]


# Applications per layer: (add and norm, rope and KV write, gate-up and act).
EXPECTED = {"llama": (2, 1, 1), "qwen3": (2, 1, 1), "gemma2": (2, 1, 0), "gemma3": (2, 1, 0)}


@pytest.mark.usefixtures("only_references")
@pytest.mark.parametrize("name", EXPECTED)
def test_fused_where_there_is_a_kernel_and_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    prompt = list(range(3, 23))
    plain = rig(tmp_path, name)
    assert not {op.name for op in FUSED} & {*ops_of(plain)}
    want = plain.step({0: prompt})[0]
    ran = [with_kernel(monkeypatch, op) for op in FUSED]
    fused = rig(tmp_path, name)
    got = fused.step({0: prompt})[0]
    layers = VARIANTS[name].config["num_hidden_layers"]
    adds, ropes, acts = EXPECTED[name]
    # The last sum of the last layer is normalised after its rows are gathered.
    assert [len(calls) for calls in ran] == [adds * layers - 1, acts * layers, ropes * layers]
    left = ops_of(fused)
    assert "rope_" not in left
    assert "write_kv_" not in left
    assert left.count("add") == 1
    torch.testing.assert_close(got, want, rtol=0, atol=2e-5)


@pytest.mark.usefixtures("only_references")
def test_a_norm_that_others_do_not_wait_for_is_left_alone(tmp_path: Path) -> None:
    """Without kernels nothing changes: the instructions are those that were traced."""
    assert ops_of(rig(tmp_path, "llama")).count("add") == 2 * 2


# Per layer: products that take a sum along, that take a norm along, and a norm and an act.
AROUND = {"llama": (2, 1, 1), "qwen3": (2, 1, 1), "gemma2": (0, 2, 0), "gemma3": (0, 2, 0)}


@pytest.mark.usefixtures("only_references")
@pytest.mark.parametrize("name", AROUND)
def test_norms_and_sums_go_into_the_products_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    prompt = list(range(3, 23))
    want = rig(tmp_path, name).step({0: prompt})[0]
    with_kernel(monkeypatch, kernels.linear_silu_mul)
    ran = [with_kernel(monkeypatch, op) for op in AROUND_PRODUCTS]
    fused = rig(tmp_path, name)
    got = fused.step({0: prompt})[0]
    layers = VARIANTS[name].config["num_hidden_layers"]
    sums, norms, acts = AROUND[name]
    # The last norm goes into the head.
    assert [len(calls) for calls in ran] == [sums * layers, norms * layers + 1, acts * layers]
    torch.testing.assert_close(got, want, rtol=0, atol=2e-5)

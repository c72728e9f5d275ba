# SPDX-License-Identifier: Apache-2.0
"""No model needs a reference on a GPU: each of its nodes has a portable kernel, or a better one.

Bound here as there, without one: what no kernel takes is seen before somebody finds it slow.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.fx.node import map_arg

from tests.spmd.test_every_model_placed import MODELS, configured
from tokenlight.kernels import OPS, contract, load_backends
from tokenlight.kernels.contract import REFERENCE, Op
from tokenlight.kv import DevicePool
from tokenlight.models import cache_specs, load_model
from tokenlight.nn import probe_sampled_rows, probe_step
from tokenlight.spmd import Limits, Ranks, placed_graph
from tokenlight.spmd.fuse import fuse
from tokenlight.spmd.target import Target

pytest.importorskip("triton", reason="Triton is installed on Linux x86-64 only")
F32, F16, BF16, F8 = torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn
Bound = set[tuple[str, str]]

WAYS = {
    "sm80-bf16": (80, BF16, BF16),
    "sm80-f16": (80, F16, F16),
    "sm90-bf16": (90, BF16, BF16),
    "sm90-bf16-fp8": (90, BF16, F8),
    "sm90-f32": (90, F32, F32),
}
QUICK = ("sm80-bf16", "sm90-bf16", "sm90-bf16-fp8")


@pytest.fixture
def gpu_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A GPU of some compute capability, as far as implementations ask."""
    load_backends("cuda")

    def be(arch: int) -> None:
        known = {f"sm{n}" for n in range(80, arch + 1)}
        monkeypatch.setattr(contract, "features", lambda device: known)

    return be


def keeps_latents(model_type: str) -> bool:
    """And so refuses float8."""
    return "kv_lora_rank" in MODELS[model_type].config


def bound(folder: Path, model_type: str, dtype: torch.dtype, kv_dtype: torch.dtype) -> Bound:
    """(Op, backend) of every node of a model's programs on a GPU."""
    checkpoint = configured(model_type, folder)
    model = load_model(checkpoint, dtype=dtype, is_dummy=True)
    kv = DevicePool(cache_specs(checkpoint), num_blocks=1, block_tokens=16, dtype=kv_dtype)
    target = Target(torch.device("cuda"), Limits(T=2048, S=64))
    body = placed_graph(model, "hidden", probe_step(kv), Ranks())
    width = next(iter(reversed(body.nodes))).meta["value"].shape[1]
    head = placed_graph(model, "logits", probe_sampled_rows(width, dtype), Ranks())
    found: Bound = set()
    for graph in (body, head):
        fuse(graph, target)
        for node in graph.nodes:
            if isinstance(node.target, Op):
                operands = map_arg(node.args, lambda operand: operand.meta["value"])
                chosen = target.bind(node.target, operands, node.kwargs)
                assert chosen.rank > REFERENCE, f"{node.target.name} has no kernel: {node.kwargs}"
                found.add((node.target.name, chosen.backend))
    return found


@pytest.mark.parametrize(
    ("model_type", "way"),
    [
        pytest.param(model_type, way, marks=() if way in QUICK else pytest.mark.slow)
        for model_type in MODELS
        for way, (_, _, kv_dtype) in WAYS.items()
        if not (kv_dtype is F8 and keeps_latents(model_type))
    ],
)
def test_every_node_has_a_kernel(
    gpu_of: Callable[[int], None], tmp_path: Path, model_type: str, way: str
) -> None:
    arch, dtype, kv_dtype = WAYS[way]
    gpu_of(arch)
    backends = {backend for _, backend in bound(tmp_path, model_type, dtype, kv_dtype)}
    assert ("cuda" in backends) == (arch == 90 and dtype is BF16)


@pytest.mark.parametrize("model_type", MODELS)
def test_nor_where_rows_shall_be_invariant(
    gpu_of: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    model_type: str,
) -> None:
    gpu_of(90)
    for op in OPS.values():
        left = [i for i in op.implementations if i.is_row_invariant]
        monkeypatch.setattr(op, "implementations", left)
    found = bound(tmp_path, model_type, BF16, BF16)
    assert {backend for _, backend in found - {("rope_write_kv_", "cuda")}} == {"triton"}


def test_a_reference_would_be_seen(
    gpu_of: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu_of(80)
    op = OPS["paged_attention"]
    left = [i for i in op.implementations if i.device != "cuda"]
    monkeypatch.setattr(op, "implementations", left)
    with pytest.raises(AssertionError, match="paged_attention has no kernel"):
        bound(tmp_path, "llama", BF16, BF16)

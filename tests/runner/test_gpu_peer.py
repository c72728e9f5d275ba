# SPDX-License-Identifier: Apache-2.0
"""FA3 beside our decode attention, with a library of its signature in its place and no GPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from benchmarks import gpu, gpu_fa3, gpu_kernels
from benchmarks.bars import report
from benchmarks.gpu_timing import Timed
from tokenlight.kernels.ops.paged_attention.reference import reference

OURS, THEIRS = "gqa_b8_32k_us", "fa3_gqa_b8_32k_us"
# As torch prints the operators of vLLM 0.22.1.
FWD = """
    fwd(Tensor(a!) q, Tensor k, Tensor v, Tensor? k_new, Tensor? v_new, Tensor? q_v,
    Tensor(b!)? out, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? cu_seqlens_k_new,
    Tensor? seqused_q, Tensor? seqused_k, int? max_seqlen_q, int? max_seqlen_k, Tensor? page_table,
    Tensor? kv_batch_idx, Tensor? leftpad_k, Tensor? rotary_cos, Tensor? rotary_sin,
    Tensor? seqlens_rotary, Tensor? q_descale, Tensor? k_descale, Tensor? v_descale,
    float softmax_scale, bool is_causal, int window_size_left, int window_size_right, float softcap,
    bool is_rotary_interleaved, Tensor? scheduler_metadata, int num_splits, bool? pack_gqa,
    int sm_margin, Tensor? s_aux, int cp_world_size, int cp_rank, Tensor? cp_tot_seqused_k)
    -> Tensor[]
"""
METADATA = """
    get_scheduler_metadata(int batch_size, int max_seqlen_q, int max_seqlen_k, int num_heads,
    int num_heads_k, int headdim, int headdim_v, ScalarType qkv_dtype, Tensor seqused_k,
    Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? cu_seqlens_k_new, Tensor? seqused_q,
    Tensor? leftpad_k, int? page_size, int max_seqlen_k_new, bool is_causal, int window_size_left,
    int window_size_right, bool has_softcap, int num_splits, bool? pack_gqa, int sm_margin)
    -> Tensor
"""


class OnCpu(TorchFunctionMode):
    """What is asked for on a GPU is made here."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        given = dict(kwargs or {})
        if given.get("device") == "cuda":
            given["device"] = "cpu"
        return func(*args, **given)


def attend(q: Tensor, k: Tensor, v: Tensor, starts, lens, table, slots, scale: float) -> Tensor:
    wide = (x.float() for x in (q, k, v))
    return reference(*wide, starts, lens, table, slots, scale=scale).to(q.dtype)


@pytest.fixture
def library() -> Iterator[dict[str, float]]:
    """Operators of the peer's names, by our reference; what they give is multiplied by `factor`."""
    told = {"factor": 1.0}
    names = [word.split()[-1] for word in FWD[: FWD.index("->")].strip(" \n)").split(",")]

    def fwd(*args: object) -> list[Tensor]:
        given = dict(zip(names, args, strict=True))
        k, v = (given[name].transpose(1, 2) for name in ("k", "v"))
        assert given["is_causal"]
        assert given["scheduler_metadata"] is not None
        table = given["page_table"]
        assert given["max_seqlen_k"] <= table.shape[1] * k.shape[2]
        slots = torch.arange(len(table), dtype=torch.int32)
        out = attend(
            given["q"], k, v, given["cu_seqlens_q"], given["seqused_k"], table, slots,
            scale=given["softmax_scale"],
        )  # fmt: skip
        return [told["factor"] * out, out[..., 0]]

    operators = torch.library.Library("_vllm_fa3_C", "FRAGMENT")
    for schema in (FWD, METADATA):
        operators.define(" ".join(schema.split()))
    operators.impl("fwd", fwd, "CPU")
    operators.impl("get_scheduler_metadata", lambda *_: torch.zeros(4, dtype=torch.int32), "CPU")
    yield told
    operators._destroy()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, tuple[int, int, int]]]:
    """Shapes that a CPU is done with; a side takes as many us as it has before it."""
    monkeypatch.setattr(gpu_kernels.paged_attention, "attend", attend)
    monkeypatch.setattr(gpu_kernels, "L2_BYTES", 1)
    monkeypatch.setattr(
        gpu_kernels, "time_in_turn", lambda sides: [Timed(5.0 - i, 0) for i in range(len(sides))]
    )
    monkeypatch.setattr(gpu_kernels, "time_graph", lambda calls: Timed(9.0, 0))
    with OnCpu():
        yield {"gqa_b1_1k": (2, 200, 1), "gqa_b4_50k_q4": (2, 70, 4)}


def test_the_peer_decodes_what_we_do_and_is_told_beside_us(library, few) -> None:
    figures = {f.name: f for f in gpu_kernels.attention(few, has_peer=True)}
    assert {name: f.us for name, f in figures.items()} == {
        "gqa_b1_1k": 5.0, "fa3_gqa_b1_1k": 3.0, "gqa_b4_50k_q4": 9.0,
    }  # fmt: skip
    assert all(f.error < 0.005 for f in figures.values())


def test_a_peer_that_is_wrong_is_none(library, few, capsys: pytest.CaptureFixture[str]) -> None:
    library["factor"] = 1.02
    figures = [f.name for f in gpu_kernels.attention(few, has_peer=True)]
    assert figures == ["gqa_b1_1k", "gqa_b4_50k_q4"]
    assert "FA3 is wrong at gqa_b1_1k" in capsys.readouterr().out


def test_a_peer_that_refuses_leaves_ours_measured(
    few, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("only Hopper\nat ...")

    monkeypatch.setattr(gpu_fa3, "decode", refuse)
    figures = {f.name: f.us for f in gpu_kernels.attention(few, has_peer=True)}
    assert figures == {"gqa_b1_1k": 9.0, "gqa_b4_50k_q4": 9.0}
    assert "FA3 did not run beside ours at gqa_b1_1k: only Hopper\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("measured", "line"),
    [
        ({OURS: 246.0, THEIRS: 240.0}, "246 <=247.2 ok"),
        ({OURS: 248.0, THEIRS: 240.0}, "248 <=247.2 missed"),
        ({OURS: 200.0}, "none <=253.38 missed (no peer: FA3 did not run beside our 200 us"),
        ({THEIRS: 240.0}, "none <=247.2 missed (not measured)"),
        ({}, "none <=253.38 missed (not measured)"),
    ],
)
def test_the_bar_of_the_peer_is_its_time_in_the_same_run(
    measured: dict[str, float], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(*gpu_fa3.beside_peer(gpu_kernels.BARS, measured)) == 1
    told = capsys.readouterr().out.splitlines()
    (found,) = (each for each in told if each.startswith(f"BAR {OURS} "))
    assert found.startswith(f"BAR {OURS} {line}")


def test_the_engines_bench_holds_it_to_the_peer_too(capsys: pytest.CaptureFixture[str]) -> None:
    everything = {bar.name: bar.required for bar in gpu.BARS} | dict.fromkeys(gpu.REPORTED, 1.0)
    assert gpu.report_all({**everything, OURS: 240.0, THEIRS: 240.0}, {}) == 0
    assert gpu.report_all({**everything, OURS: 240.0}, {}) == 1
    assert "missed (no peer" in capsys.readouterr().out
    del everything[gpu.REPORTED[0]]
    assert gpu.report_all({**everything, OURS: 240.0, THEIRS: 240.0}, {}) == 1


@pytest.mark.parametrize("named", [None, ".", "_vllm_fa3_C.abi3.so", "nowhere"])
def test_what_is_no_library_is_told(
    named: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if named == "_vllm_fa3_C.abi3.so":
        (tmp_path / named).write_bytes(b"no library")
    assert not gpu_kernels.find_peer(None if named is None else tmp_path / named)
    why = "--fa3 names" if named is None else str(tmp_path)
    told = capsys.readouterr().out
    assert told.startswith("FA3: none (")
    assert why in told


def test_a_library_is_found_below_a_folder(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "vllm" / "vllm_flash_attn" / "_vllm_fa3_C.abi3.so"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"")
    loaded: list[str] = []
    monkeypatch.setattr(torch.ops, "load_library", loaded.append)
    gpu_fa3.load(tmp_path)
    gpu_fa3.load(file)
    assert loaded == [str(file)] * 2

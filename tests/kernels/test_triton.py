# SPDX-License-Identifier: Apache-2.0
"""Triton kernels where there is no GPU: run by the interpreter, and compiled for one."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from tokenlight.kernels import FORMATS, OPS
from tokenlight.kernels.backends import load_backends
from tokenlight.kernels.case import in_dtype, results

pytest.importorskip("triton", reason="Triton is installed on Linux x86-64 only")
load_backends("cuda")
compiled_for = import_module("tests.kernels.triton_compiler").compiled_for

BF16 = torch.bfloat16


def interpret(tests: str = "triton", *, every_case: bool = False, case: str = "") -> int:
    """Run conformance tests of Triton in a process that interprets; how many passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-W", "ignore::RuntimeWarning"]
    command += ["-k", tests, "--timeout", "600", "tests/kernels/test_conformance.py"]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        env={
            **os.environ,
            "TRITON_INTERPRET": "1",
            "TOKENLIGHT_EVERY_CASE": "1" if every_case else "0",
            "TOKENLIGHT_CASE": case,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return int(re.search(r"(\d+) passed", done.stdout)[1])


def num_triton(backend: str) -> int:
    return sum(i.backend == backend for op in OPS.values() for i in op.implementations)


@pytest.mark.timeout(600)
def test_kernels_agree_with_their_references() -> None:
    """A few rows of some cases, and one 16-bit type."""
    assert interpret() == 2 * num_triton("triton") + num_triton("triton_prefill")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["paged_attention", "sample"])
def test_the_intricate_ones_agree_in_every_case(name: str) -> None:
    assert interpret(f"{name}-triton-any and agrees", every_case=True) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_prefill_in_one_softmax_agrees() -> None:
    """What it leaves to the other kernel was compared with that."""
    assert interpret("triton_prefill and agrees", every_case=True, case="in a prefill") == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_query_of_a_long_prefill_has_the_bits_of_a_decode() -> None:
    """The one walks all chunks in one program; the other has a program for each, and a merge."""
    assert interpret("rows and paged_attention-triton-any", every_case=True, case="append") == 1


def run(name: str, backend: str = "triton"):
    return next(i.run for i in OPS[name].implementations if i.backend == backend)


def test_heads_that_do_not_lie_together_are_refused() -> None:
    heads = torch.zeros(2, 8, 4).transpose(1, 2)
    with pytest.raises(ValueError, match=r"contiguous heads, got \[2, 4, 8\] of strides"):
        run("rope_")(heads, heads, torch.zeros(2, 8))


def launch_linear(rows: int, name: str = "linear") -> None:
    weight = torch.empty(512, 1024, dtype=BF16)
    run(name)(torch.empty(rows, 1024, dtype=BF16), weight, None, format=FORMATS["bf16"])


def launch_attention(
    tokens: int, requests: int, backend: str = "triton", stored: torch.dtype = BF16
) -> None:
    cache = torch.empty(8, 2, 16, 128, dtype=stored)
    ints = torch.zeros(requests + 1, dtype=torch.int32)
    table = torch.zeros(requests, 256, dtype=torch.int32)
    batch = ints, ints[1:], table, ints[1:]
    attend = run("paged_attention", backend)
    attend(torch.empty(tokens, 8, 128, dtype=BF16), cache, cache, *batch, scale=0.1)


@pytest.mark.parametrize("rows", [1, 100, 2048])
def test_products_of_any_height_are_of_one_kind(rows: int, tmp_path: Path) -> None:
    """What makes a row's bits the same alone and among a thousand: one instruction, one order."""
    assert_one_kind(lambda: launch_linear(rows), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 100, 2048])
def test_gated_products_of_any_height_are_of_one_kind(rows: int, tmp_path: Path) -> None:
    assert_one_kind(lambda: launch_linear(rows, "linear_silu_mul"), tmp_path)


@pytest.mark.parametrize(
    ("tokens", "requests"),
    [(1, 1), pytest.param(300, 1, marks=pytest.mark.slow)],
)
def test_attention_is_of_one_kind(tokens: int, requests: int, tmp_path: Path) -> None:
    assert_one_kind(lambda: launch_attention(tokens, requests), tmp_path)


F8 = torch.float8_e4m3fn


@pytest.mark.parametrize(
    ("tokens", "backend", "stored", "num_in_flight"),
    [
        (300, "triton_prefill", BF16, 2),
        pytest.param(300, "triton", BF16, 2, marks=pytest.mark.slow),
        pytest.param(300, "triton_prefill", F8, 4, marks=pytest.mark.slow),
        pytest.param(1, "triton", F8, 2, marks=pytest.mark.slow),
    ],
)
def test_keys_arrive_while_those_before_them_are_multiplied(
    tokens: int, backend: str, stored: torch.dtype, num_in_flight: int, tmp_path: Path
) -> None:
    """The compiler may wait for what is needed now and leave the rest on its way: it could not,
    were a key's address to wait for a load of the same turn.
    """
    with compiled_for(90, tmp_path) as kernels:
        launch_attention(tokens, 1, backend, stored)
    code = kernels[0].asm["ttgir"]
    assert kernels[0].metadata.shared <= 227 << 10
    assert {int(n) for n in re.findall(r"async_wait .*num = (\d+)", code)} == {0, num_in_flight}
    assert "wgmma.mma_async" in kernels[0].asm["ptx"]


@pytest.mark.slow
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("tokens", [1, 300])
def test_the_compiler_has_little_to_write_for_float32(
    tokens: int, head_dim: int, tmp_path: Path
) -> None:
    """Of plain units each multiplication of a thread is a line: with 64 queries of 64 keys in four
    warps there were so many that ptxas took half a minute for each kernel of a start.
    """
    cache = torch.empty(8, 2, 16, head_dim)
    ints = torch.zeros(2, dtype=torch.int32)
    batch = ints, ints[1:], torch.zeros(1, 256, dtype=torch.int32), ints[1:]
    with compiled_for(90, tmp_path) as kernels:
        run("paged_attention", "triton")(
            torch.empty(tokens, 8, head_dim), cache, cache, *batch, scale=0.1
        )
    assert max(kernel.asm["ptx"].count("\n") for kernel in kernels) < 8000


def assert_one_kind(launch, cache: Path) -> None:
    with compiled_for(90, cache) as kernels:
        launch()
    code = kernels[0].asm["ptx"]
    assert "wgmma.mma_async" in code
    assert "mma.sync" not in code


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [n for n, op in OPS.items() if len(op.implementations) > 1])
def test_every_kernel_compiles(name: str, tmp_path: Path) -> None:
    """What only the device's compiler refuses is seen here, for a model in bfloat16."""
    op = OPS[name]
    implementation = next((i for i in op.implementations if i.backend == "triton"), None)
    if implementation is None:
        pytest.skip("no Triton kernel")
    cases = import_module(op.contract.__module__.replace(".contract", ".cases")).cases("cpu")
    sites = [op.site(*case.args, **case.kwargs)._replace(device="cuda") for case in cases]
    able = [
        (site.stored is not BF16, n)
        for n, site in enumerate(sites)
        if len(cases[n].args[0]) and implementation.why_not(site) is None
    ]
    case = cases[min(able)[1]]
    with compiled_for(90, tmp_path) as kernels:
        results(op, implementation, in_dtype(case, BF16) if case.activations else case)
    assert kernels
    assert all(kernel.asm["cubin"] for kernel in kernels)

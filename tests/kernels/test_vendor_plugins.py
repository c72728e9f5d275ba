# SPDX-License-Identifier: Apache-2.0
"""`examples/vendor_kernels`: what it hands to each library, by fakes that keep its signature.

A fake computes with torch what the library's documentation says of these arguments, and refuses
what the library would; the cases are those of the ops, on the CPU.
"""

import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from tokenlight.kernels import OPS, contract
from tokenlight.kernels.case import Case, in_dtype, results
from tokenlight.kernels.contract import TUNED, Implementation
from tokenlight.kernels.plugins import GROUP, load_plugin
from tokenlight.kernels.tuning import Tuned

EXAMPLE = Path(__file__).parents[2] / "examples" / "vendor_kernels"
PACKAGE = "tokenlight_vendor_kernels"
BF16 = torch.bfloat16


def flash_attn_with_kvcache(  # noqa: PLR0913 - as the library has it
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    cache_seqlens: Tensor,
    page_table: Tensor,
    cu_seqlens_q: Tensor,
    max_seqlen_q: int,
    softmax_scale: float,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
) -> Tensor:
    """Caches [pages, tokens of a page, heads, d]; a mask aligned to the last query and key."""
    assert causal
    assert q.dtype == k_cache.dtype
    assert all(x.stride(-1) == 1 for x in (q, k_cache, v_cache))
    assert all(x.dtype is torch.int32 for x in (cache_seqlens, page_table, cu_seqlens_q))
    assert cu_seqlens_q.diff().max() <= max_seqlen_q
    out = torch.full(q.shape, torch.nan, dtype=q.dtype)
    for r, num_keys in enumerate(cache_seqlens.tolist()):
        first, last = cu_seqlens_q[r : r + 2].tolist()
        pages = page_table[r, : -(-num_keys // k_cache.shape[1])].long()
        keys, values = (
            cache[pages].flatten(0, 1)[:num_keys].double() for cache in (k_cache, v_cache)
        )
        group = q.shape[1] // keys.shape[1]
        keys, values = (x.repeat_interleave(group, 1) for x in (keys, values))
        scores = torch.einsum("qhd,khd->hqk", q[first:last].double(), keys) * softmax_scale
        if softcap:
            scores = softcap * (scores / softcap).tanh()
        query = torch.arange(num_keys - (last - first), num_keys)[:, None]
        key, (left, right) = torch.arange(num_keys), window_size
        seen = key <= query + max(right, 0)
        if left >= 0:
            seen &= key >= query - left
        shares = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        out[first:last] = torch.einsum("hqk,khd->qhd", shares, values).to(q.dtype)
    return out


def rmsnorm(input: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    assert input.dim() == 2
    assert input.stride(-1) == 1
    wide = input.double()
    scaled = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double()
    return scaled.to(input.dtype)


def silu_and_mul(input: Tensor) -> Tensor:
    assert input.is_contiguous()
    gate, up = input.double().chunk(2, -1)
    return (torch.nn.functional.silu(gate) * up).to(input.dtype)


def bf16_gemm_nt(a: Tensor, b: Tensor, d: Tensor) -> None:
    assert {x.dtype for x in (a, b, d)} == {BF16}
    assert all(x.is_contiguous() and x.shape[1] % 8 == 0 for x in (a, b, d))
    d.copy_(a.double() @ b.double().T)


FAKES: dict[str, dict[str, dict[str, Callable[..., Any]]]] = {
    "flash_attention": {
        "flash_attn_interface": {"flash_attn_with_kvcache": flash_attn_with_kvcache}
    },
    "flashinfer": {
        "flashinfer": {},
        "flashinfer.norm": {"rmsnorm": rmsnorm},
        "flashinfer.activation": {"silu_and_mul": silu_and_mul},
    },
    "deep_gemm": {"deep_gemm": {"bf16_gemm_nt": bf16_gemm_nt}},
}
ADDED = {
    "flash_attention": (
        "paged_attention/flash_attention_f16",
        "paged_attention/flash_attention",
    ),
    "flashinfer": ("rms_norm/flashinfer", "silu_mul/flashinfer"),
    "deep_gemm": ("linear/deep_gemm",),
}


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, EntryPoint]]:
    """The plugins, as the package declares them; ops forget what they add."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(EXAMPLE)
    for op in OPS.values():
        monkeypatch.setattr(op, "implementations", list(op.implementations))
        monkeypatch.setattr(op, "_bound", {})
        monkeypatch.setattr(op, "_preferred", {})
    text = (EXAMPLE / "pyproject.toml").read_text()
    found = dict(re.findall(rf'^(\w+) = "({PACKAGE}[\w.]*:\w+)"$', text, re.M))
    yield {name: EntryPoint(name, value, GROUP) for name, value in found.items()}
    for name in set(sys.modules) - before:
        if name.startswith(PACKAGE):
            del sys.modules[name]


@pytest.fixture
def installed(declared: dict[str, EntryPoint], monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """All three libraries are there; (op/backend) of what their plugins added."""
    added: set[str] = set()
    for name, modules in FAKES.items():
        for module_name, functions in modules.items():
            module = ModuleType(module_name)
            vars(module).update(functions)
            monkeypatch.setitem(sys.modules, module_name, module)
        plugin = load_plugin(declared[name], OPS)
        assert (plugin.error, plugin.added) == (None, ADDED[name])
        added |= set(plugin.added)
    return added


def test_a_library_that_is_absent_is_named_and_its_plugin_skipped(declared, monkeypatch) -> None:
    assert declared.keys() == FAKES.keys()
    for name, modules in FAKES.items():
        library = next(iter(modules))
        monkeypatch.setitem(sys.modules, library, None)  # as if it were, where it is not
        plugin = load_plugin(declared[name], OPS)
        assert plugin.added == ()
        assert re.match(f"ModuleNotFoundError: .*{library}", plugin.error)


def of(added: str) -> tuple[contract.Op, Implementation]:
    name, backend = added.split("/")
    return OPS[name], next(i for i in OPS[name].implementations if i.backend == backend)


@pytest.mark.parametrize(
    "added",
    [
        pytest.param(each, marks=pytest.mark.slow if each.endswith("_f16") else ())
        for names in ADDED.values()
        for each in names
    ],
)
def test_what_a_library_is_handed_gives_what_the_reference_gives(added, installed, monkeypatch):
    """In every case of the op whose types it takes: strides, windows, empty calls."""
    monkeypatch.setattr(contract, "features", lambda device: {"sm90"})
    op, implementation = of(added)
    reference = next(i for i in op.implementations if i.backend == "reference")
    checked = 0
    for case in served(op, implementation):
        wanted = results(op, reference, case)
        for got, want in zip(results(op, implementation, case), wanted, strict=True):
            assert got.is_contiguous()
            torch.testing.assert_close(got, want, rtol=case.rtol, atol=case.atol)
        checked += 1
    assert checked >= 5


def served(op: contract.Op, implementation: Implementation) -> Iterator[Case]:
    for case in import_module(op.contract.__module__.replace(".contract", ".cases")).cases("cpu"):
        for dtype in (torch.float16, BF16):
            short = in_dtype(case, dtype)
            site = op.site(*short.args, **short.kwargs)._replace(device="cuda")
            given = [short.args[i] for i in case.activations if short.args[i] is not None]
            if implementation.why_not(site) is None and all(x.isfinite().all() for x in given):
                yield short


def test_they_serve_where_no_tuned_kernel_does_or_where_they_were_faster(installed, monkeypatch):
    monkeypatch.setattr(contract, "features", lambda device: {"sm80", "sm90"})
    attention = OPS["paged_attention"]
    half, wide = (contract.Site("cuda", d, d, None) for d in (torch.float16, BF16))
    assert attention.bind(half).backend == "flash_attention_f16"
    tuned = attention.implement("ours", device="cuda", dtypes={BF16}, rank=TUNED)
    tuned(attention.bind(half).run)
    assert attention.bind(wide).rank == TUNED
    chosen = Tuned("paged_attention", wide, {"flash_attention": 1.0, "ours": 1.3})
    attention.prefer({wide: chosen.backend})
    assert attention.bind(wide).backend == "flash_attention"


def test_what_splits_sums_by_the_number_of_rows_says_so(installed) -> None:
    split = {added for added in installed if not of(added)[1].is_row_invariant}
    assert split == {*ADDED["flash_attention"], *ADDED["deep_gemm"]}

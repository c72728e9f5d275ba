# SPDX-License-Identifier: Apache-2.0
"""References against code that we did not write; conformance holds everything else to them."""

import pytest
import torch
from torch.nn.functional import rms_norm, scaled_dot_product_attention
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from tokenlight.kernels.ops import OPS
from tokenlight.kernels.ops.sample.reference import uniform


def reference(name: str):
    return next(i.run for i in OPS[name].implementations if i.backend == "reference")


def test_rms_norm_is_that_of_torch() -> None:
    x_TD, weight_D = torch.randn(5, 48), torch.randn(48)
    want = rms_norm(x_TD, (48,), weight_D, eps=1e-5)
    torch.testing.assert_close(reference("rms_norm")(x_TD, weight_D, eps=1e-5), want)


def test_rope_is_that_of_transformers() -> None:
    q_THd, k_TKd = torch.randn(5, 4, 16), torch.randn(5, 2, 16)
    angles = torch.randn(5, 8)
    cos, sin = (torch.cat([f, f], -1)[None] for f in (angles.cos(), angles.sin()))
    q, k = apply_rotary_pos_emb(
        *(x.transpose(0, 1)[None] for x in (q_THd, k_TKd)), cos=cos, sin=sin
    )
    reference("rope_")(q_THd, k_TKd, torch.cat([angles.cos(), angles.sin()], -1))
    torch.testing.assert_close(q_THd, q[0].transpose(0, 1))
    torch.testing.assert_close(k_TKd, k[0].transpose(0, 1))


@pytest.mark.parametrize("window", [0, 3])
def test_paged_attention_is_that_of_torch(window: int) -> None:
    """One request whose blocks are out of order; torch gets the same keys in order."""
    kv_len, num_queries = 11, 4
    k_HLd, v_HLd = torch.randn(2, 4, kv_len, 8)
    q_THd = torch.randn(num_queries, 4, 8)
    blocks = [2, 0, 1]
    caches = torch.zeros(2, 3, 4, 4, 8)
    for cache, rows in zip(caches, (k_HLd, v_HLd), strict=True):
        for i in range(kv_len):
            cache[blocks[i // 4], :, i % 4] = rows[:, i]
    got = reference("paged_attention")(
        *(q_THd, caches[0], caches[1]),
        query_starts=torch.tensor([0, num_queries]),
        kv_lens=torch.tensor([kv_len]),
        block_table=torch.tensor([[9, 9, 9], blocks]),
        slots=torch.tensor([1]),
        scale=0.3,
        window=window,
    )
    query = torch.arange(kv_len - num_queries, kv_len)[:, None]
    key = torch.arange(kv_len)
    seen = (key <= query) & ((key > query - window) if window else True)
    want = scaled_dot_product_attention(
        q_THd.transpose(0, 1), k_HLd, v_HLd, attn_mask=seen, scale=0.3
    )
    torch.testing.assert_close(got, want.transpose(0, 1))


def test_uniform_is_splitmix64() -> None:
    """From state 0, SplitMix64's first outputs are known; mix(0) = 0, so seed 0 starts there."""
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [uniform(0, i + 1) for i in range(3)] == [(z >> 11) / 2**53 for z in known]


def draws(logits: torch.Tensor, count: int, **params: float) -> torch.Tensor:
    """How often each token came, of `count` draws at different positions."""
    given = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **params}
    dtypes = (torch.float32, torch.int32, torch.float32, torch.float32)
    columns = [
        torch.full((count,), v, dtype=d) for v, d in zip(given.values(), dtypes, strict=True)
    ]
    ids = OPS["sample"](
        logits.expand(count, -1),
        *columns,
        torch.full((count,), 99),
        torch.arange(count, dtype=torch.int32),
    )
    return ids.bincount(minlength=len(logits)) / count


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sample_draws_from_the_softmax(temperature: float) -> None:
    logits = torch.tensor([2.0, 1.0, 0.5, 0.5, -1.0, -3.0])
    count = 20_000
    got = draws(logits, count, temperature=temperature)
    want = (logits / temperature).softmax(0)
    # Five standard deviations of each token's share.
    assert ((got - want).abs() < 5 * (want * (1 - want) / count).sqrt()).all(), (got, want)


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({"top_k": 2}, [0, 1]),
        ({"top_p": 0.5}, [0]),
        ({"top_p": 0.75}, [0, 1]),
        ({"top_k": 3, "top_p": 0.95}, [0, 1, 2]),
        ({"min_p": 0.19}, [0, 1, 2]),
        ({"min_p": 0.3, "top_p": 0.99}, [0, 1]),
    ],
)
def test_sample_keeps_what_the_filters_keep(params: dict[str, float], kept: list[int]) -> None:
    """Probabilities 0.6, 0.2, 0.12, 0.08 in that order."""
    shares = draws(torch.tensor([0.6, 0.2, 0.12, 0.08]).log(), 2000, **params)
    assert shares.nonzero().flatten().tolist() == kept


def test_sample_takes_the_lowest_id_among_the_largest() -> None:
    logits = torch.tensor([1.0, 3.0, 3.0, 2.0])
    assert draws(logits, 4, temperature=0.0).tolist() == [0, 1, 0, 0]

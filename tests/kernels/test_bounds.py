# SPDX-License-Identifier: Apache-2.0
"""Indices and shapes that lead outside are refused with the numbers, never followed."""

from typing import Any

import pytest
import torch

from tokenlight import kernels
from tokenlight.kernels import FORMATS
from tokenlight.kernels.formats.tile16 import TILE16


def batch(**changed: Any) -> dict[str, torch.Tensor]:
    given = {
        "query_starts": [0, 2],
        "kv_lens": [5],
        "block_table": [[0, 0], [1, 2]],
        "slots": [1],
        **changed,
    }
    return {name: torch.tensor(value, dtype=torch.int32) for name, value in given.items()}


def attend(*sinks: torch.Tensor, **changed: Any) -> torch.Tensor:
    given = batch(**changed)
    cache = torch.zeros(3, 1, 4, 8)
    arrays = [given[n] for n in ("query_starts", "kv_lens", "block_table", "slots")]
    caches = cache, cache.clone()
    return kernels.paged_attention(torch.zeros(2, 2, 8), *caches, *arrays, *sinks, scale=1.0)


def write(positions: list[int], **changed: Any) -> None:
    given = batch(**changed)
    cache, rows = torch.zeros(3, 1, 4, 8), torch.zeros(2, 1, 8)
    arrays = [given[n] for n in ("query_starts", "block_table", "slots")]
    kernels.write_kv_(
        rows, rows, cache, cache.clone(), torch.tensor(positions, dtype=torch.int32), *arrays
    )


def test_a_good_batch_passes() -> None:
    assert attend().shape == (2, 2, 8)
    assert attend(torch.zeros(2)).shape == (2, 2, 8)
    write([3, 4])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"slots": [2]}, r"slots\[0\] is 2, but must be in \[0, 2\)"),
        ({"slots": [-1]}, r"slots\[0\] is -1"),
        ({"kv_lens": [9]}, r"last position of request 0 is 8, but must be in \[0, 8\)"),
        ({"kv_lens": [1]}, "request 0 has 2 queries but a kv length of 1"),
        ({"block_table": [[0, 0], [1, 3]]}, r"block 1 of request 0 is 3, but must be in \[0, 3\)"),
        ({"block_table": [[0, 0], [-1, 2]]}, "block 0 of request 0 is -1"),
        ({"query_starts": [0, 3]}, r"query_starts\[1\] is 3"),
        ({"query_starts": [0, 1]}, "query_starts must run from 0 to the number of tokens, 2"),
        ({"query_starts": [1, 2]}, "query_starts must run from 0"),
    ],
)
def test_attention_follows_no_index_outside(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(IndexError, match=message):
        attend(**changed)


@pytest.mark.parametrize("sinks", [torch.zeros(3), torch.zeros(2, dtype=torch.float64)])
def test_attention_refuses_sinks_of_other_heads(sinks: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="want float32 sinks of 2 heads"):
        attend(sinks)


@pytest.mark.parametrize(
    ("positions", "changed", "message"),
    [
        ([7, 8], {}, "last position of request 0 is 8"),
        ([-1, 0], {}, "last position of request 0 is -1"),
        ([3, 4], {"block_table": [[0, 0], [1, 3]]}, "block 1 of request 0 is 3"),
        ([3, 4], {"slots": [5]}, r"slots\[0\] is 5"),
    ],
)
def test_writing_follows_no_index_outside(
    positions: list[int], changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(IndexError, match=message):
        write(positions, **changed)


@pytest.mark.parametrize("token_id", [-1, 16, 2**31 - 1])
def test_embedding_refuses_an_id_outside(token_id: int) -> None:
    with pytest.raises(IndexError, match=f"token id {token_id} at 1 is outside .* of 16"):
        kernels.embedding(
            torch.tensor([0, token_id], dtype=torch.int32),
            torch.zeros(16, 8),
            format=FORMATS["f32"],
        )


def test_linear_refuses_a_weight_of_another_width() -> None:
    with pytest.raises(ValueError, match=r"f32 weight of \[4, 8\] does not take 7 features"):
        kernels.linear(torch.zeros(2, 7), torch.zeros(4, 8), None, format=FORMATS["f32"])


@pytest.mark.parametrize(
    ("n", "complaint"), [(31, "even number of rows, got 31"), (64, "does not")]
)
def test_gates_and_ups_are_refused_as_a_product_is(n: int, complaint: str) -> None:
    weight = torch.zeros(n, TILE16["q8_0"].row_bytes(64), dtype=torch.uint8)
    with pytest.raises(ValueError, match=complaint):
        kernels.linear_silu_mul(torch.zeros(2, 96), weight, None, format=TILE16["q8_0"])


def test_rope_refuses_more_angles_than_dimensions() -> None:
    with pytest.raises(ValueError, match="even and at most d"):
        kernels.rope_(torch.zeros(2, 2, 8), torch.zeros(2, 1, 8), torch.zeros(2, 10))


def test_sample_refuses_a_parameter_of_another_type() -> None:
    ones = torch.ones(1)
    ints = torch.ones(1, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"1 parameters of torch.int32, got torch.float32"):
        kernels.sample(torch.zeros(1, 4), ones, ones, ones, ones, ints.long(), ints)


def test_writing_latents_follows_no_index_outside() -> None:
    given = batch()
    arrays = [given[n] for n in ("query_starts", "block_table", "slots")]
    cache, latents = torch.zeros(3, 1, 4, 12), torch.zeros(2, 8)

    def write_latents(*positions: int, rotated: int = 4) -> None:
        places = torch.tensor(positions, dtype=torch.int32)
        kernels.write_latent_(latents, torch.zeros(2, 1, rotated), cache, places, *arrays)

    write_latents(3, 4)
    with pytest.raises(IndexError, match="last position of request 0 is 8"):
        write_latents(7, 8)
    with pytest.raises(ValueError, match=r"do not fit a cache of \[3, 1, 4, 12\]"):
        write_latents(3, 4, rotated=6)


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 0},
        {"top_k": 9},
        {"top_k": 5, "num_groups": 4, "top_groups": 2},
        {"top_k": 2, "num_groups": 3, "top_groups": 1},
        {"top_k": 2, "num_groups": 4, "top_groups": 2, "group_best": 3},
        {"top_k": 2, "scoring": "tanh"},
    ],
)
def test_route_refuses_what_cannot_be_chosen(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="of 8 experts cannot be chosen"):
        kernels.route(torch.zeros(2, 8), None, **options)


def test_route_of_what_is_no_number_stays_among_the_experts() -> None:
    logits = torch.full((3, 16), torch.nan)
    logits[1, 3] = 1
    experts, _ = kernels.route(logits, None, top_k=8, num_groups=4, top_groups=2, group_best=2)
    assert all(len({*row}) == 8 for row in experts.tolist())
    assert 0 <= int(experts.min()) <= int(experts.max()) < 16


def test_moe_passes_over_experts_that_are_not_here() -> None:
    """Any number may come: what is no expert of this rank is another's."""
    f32 = FORMATS["f32"]
    weights = torch.ones(2, 8, 4), torch.ones(2, 4, 4)
    experts = torch.tensor([[-1, 2], [2**31 - 1, 7], [3, 2]], dtype=torch.int32)
    share = torch.full((3, 2), 0.5)
    y = kernels.moe(
        torch.ones(3, 4), experts, share, *weights, format=f32, down_format=f32, first_expert=2
    )
    assert not y[1].any()
    assert torch.equal(y[2], 2 * y[0])
    with pytest.raises(ValueError, match="do not route 3 tokens"):
        kernels.moe(torch.ones(3, 4), experts.long(), share, *weights, format=f32, down_format=f32)
    with pytest.raises(ValueError, match=r"down of \[2, 4, 5\] is no f32 weight of 2 experts"):
        kernels.moe(
            *(torch.ones(3, 4), experts, share, weights[0], torch.ones(2, 4, 5)),
            format=f32,
            down_format=f32,
        )

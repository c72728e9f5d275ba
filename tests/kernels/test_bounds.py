# SPDX-License-Identifier: Apache-2.0
"""Indices and shapes that lead outside are refused with the numbers, never followed."""

from typing import Any

import pytest
import torch

from tokenlight import kernels
from tokenlight.kernels import FORMATS


def batch(**changed: Any) -> dict[str, torch.Tensor]:
    given = {
        "query_starts": [0, 2],
        "kv_lens": [5],
        "block_table": [[0, 0], [1, 2]],
        "slots": [1],
        **changed,
    }
    return {name: torch.tensor(value, dtype=torch.int32) for name, value in given.items()}


def attend(**changed: Any) -> torch.Tensor:
    given = batch(**changed)
    cache = torch.zeros(3, 1, 4, 8)
    arrays = [given[n] for n in ("query_starts", "kv_lens", "block_table", "slots")]
    return kernels.paged_attention(torch.zeros(2, 2, 8), cache, cache.clone(), *arrays, scale=1.0)


def write(positions: list[int], **changed: Any) -> None:
    given = batch(**changed)
    cache, rows = torch.zeros(3, 1, 4, 8), torch.zeros(2, 1, 8)
    arrays = [given[n] for n in ("query_starts", "block_table", "slots")]
    kernels.write_kv_(
        rows, rows, cache, cache.clone(), torch.tensor(positions, dtype=torch.int32), *arrays
    )


def test_a_good_batch_passes() -> None:
    assert attend().shape == (2, 2, 8)
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


def test_rope_refuses_more_angles_than_dimensions() -> None:
    with pytest.raises(ValueError, match="even and at most d"):
        kernels.rope_(torch.zeros(2, 2, 8), torch.zeros(2, 1, 8), torch.zeros(2, 10))


def test_sample_refuses_a_parameter_of_another_type() -> None:
    ones = torch.ones(1)
    ints = torch.ones(1, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"1 parameters of torch.int32, got torch.float32"):
        kernels.sample(torch.zeros(1, 4), ones, ones, ones, ones, ints.long(), ints)

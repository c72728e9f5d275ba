# SPDX-License-Identifier: Apache-2.0
"""Decode attention in CUDA where the length of its chunks changes: the same bits in any company."""

import pytest
import torch

from tokenlight.kernels.ops.paged_attention import cases
from tokenlight.kernels.ops.paged_attention.cuda import attend
from tokenlight.kernels.ops.paged_attention.reference import reference

pytestmark = pytest.mark.cuda

# Eight kv heads: chunks grow every 1024 positions from 4096 on. Drafts lie on both sides.
BATCHES = {
    "decodes": ((1, 4096), (1, 4097), (1, 5120), (1, 5121), (1, 9000), (1, 255), (1, 257)),
    "drafts": ((4, 4098), (8, 5125), (2, 1025), (5, 6144), (1, 7), (3, 3)),
    "more than blocks": tuple((1, 200 + 97 * i) for i in range(24)),
}


@pytest.mark.parametrize("window", [0, 700])
@pytest.mark.parametrize("batch", BATCHES)
def test_bits_depend_on_the_position_alone(batch: str, window: int) -> None:
    shape = cases.Shape(BATCHES[batch], 32, 8, 128, 16, torch.bfloat16)
    case = cases._case(batch, shape, "cuda", window=window)
    q_THd, *rest = case.args
    q_THd = q_THd.bfloat16()
    got_THd = attend(q_THd, *rest, **case.kwargs)
    want_THd = reference(q_THd.float(), *rest, **case.kwargs)
    assert (got_THd.float() - want_THd).norm() <= 6e-3 * want_THd.norm()
    for _ in range(3):
        assert torch.equal(attend(q_THd, *rest, **case.kwargs), got_THd)
    for part in cases.parts(case):
        q_part, *rest_of_part = part.case.args
        got = attend(q_part.bfloat16(), *rest_of_part, **case.kwargs)
        assert torch.equal(got, part.of_whole([got_THd])[0]), part.case.name

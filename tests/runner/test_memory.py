# SPDX-License-Identifier: Apache-2.0
"""What is left of a GPU for KV, and what is said when nothing is."""

import pytest
import torch

from tokenlight.base.errors import ConfigError
from tokenlight.runner.memory import Usage, told_when_out_of_memory

GIB = 1 << 30
USAGE = Usage(total=80 * GIB, elsewhere=1 * GIB, weights=15 * GIB, step=4 * GIB)


def test_kv_gets_what_the_fraction_allows_less_all_else():
    assert USAGE.spare_bytes(0.9, 1 << 20) == 72 * GIB - 20 * GIB
    assert USAGE.spare_bytes(0.5, 1 << 20) == 20 * GIB


@pytest.mark.parametrize("fraction", [0.25, 0.2, 0.01])
def test_a_gpu_that_is_too_small_is_told_what_took_how_much(fraction):
    with pytest.raises(ConfigError) as refused:
        USAGE.spare_bytes(fraction, 1 << 20)
    said = refused.value.message
    for number in ("80.00 GiB", "15.00 GiB", "4.00 GiB", "1.00 GiB", str(fraction)):
        assert number in said
    for flag in ("--gpu-memory-utilization", "--max-num-batched-tokens", "--max-num-seqs"):
        assert flag in said


def test_one_block_to_use_and_one_for_padding_are_the_least():
    block_bytes = 26 * GIB
    assert USAGE.spare_bytes(0.9, block_bytes) == 2 * block_bytes
    with pytest.raises(ConfigError):
        USAGE.spare_bytes(0.9, block_bytes + 1)


def test_the_allocators_error_becomes_one_that_helps(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (3 * GIB, 24 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 20 * GIB)
    with pytest.raises(ConfigError) as refused, told_when_out_of_memory(0.9):
        raise torch.cuda.OutOfMemoryError("tried to allocate")
    said = refused.value.message
    for words in ("24.00 GiB", "20.00 GiB", "3.00 GiB", "--gpu-memory-utilization is 0.9"):
        assert words in said


def test_other_errors_pass_through():
    with pytest.raises(ValueError, match="else"), told_when_out_of_memory(0.9):
        raise ValueError("else")

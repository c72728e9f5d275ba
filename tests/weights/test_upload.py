# SPDX-License-Identifier: Apache-2.0
"""Reading ahead keeps the order, the bytes and the faults of reading one after the other."""

import time
from functools import partial

import pytest
import torch

from tokenlight.kernels import FORMATS
from tokenlight.weights import StoredTensor
from tokenlight.weights.upload import NUM_AHEAD, Upload, read_ahead, uploaded

CPU = torch.device("cpu")


def stored(number: int, num_rows: int, row_bytes: int) -> StoredTensor:
    random = torch.Generator().manual_seed(number)
    rows = torch.randint(0, 256, (num_rows, row_bytes), dtype=torch.uint8, generator=random)
    shape = (num_rows, row_bytes // 2)
    return StoredTensor(
        name=f"t{number}", shape=shape, format=FORMATS["bf16"], layout="huggingface", rows=rows
    )


def read(number: int, begun: list[int]) -> list[StoredTensor]:
    begun.append(number)
    time.sleep(0.002 * (number % 3))  # those that come first are not those that begin first
    return [stored(number, 1 + number % 4, 2 * (1 + number)), stored(100 + number, 2, 64)]


@pytest.mark.parametrize("chunk_bytes", [7, 64, 1 << 20])
def test_all_arrive_in_order_and_whole(chunk_bytes):
    begun: list[int] = []
    reads = [partial(read, number, begun) for number in range(40)]
    for number, parts in enumerate(uploaded(reads, lambda: Upload(CPU, chunk_bytes))):
        assert [part.name for part in parts] == [f"t{number}", f"t{100 + number}"]
        for part, want in zip(parts, read(number, []), strict=True):
            assert torch.equal(part.rows, want.rows)
            assert (part.shape, part.format) == (want.shape, want.format)
    assert sorted(begun) == list(range(40))


def test_no_more_is_read_ahead_than_fits():
    begun: list[int] = []
    arriving = uploaded((partial(read, n, begun) for n in range(100)), lambda: Upload(CPU, 64))
    for number, _ in enumerate(arriving):
        assert len(begun) <= number + NUM_AHEAD + 2


def test_rows_that_lie_apart_arrive_together():
    whole = stored(1, 8, 16)
    apart = StoredTensor(
        name="t", shape=(4, 8), format=whole.format, layout="gguf", rows=whole.rows[::2]
    )
    assert torch.equal(Upload(CPU, 24)(apart).rows, whole.rows[::2])


def test_a_fault_of_one_read_is_raised_in_its_turn():
    def fail() -> list[StoredTensor]:
        raise OSError("gone")

    reads = [partial(read, 0, []), fail, partial(read, 1, [])]
    arriving = uploaded(reads, lambda: Upload(CPU, 64))
    assert next(arriving)[0].name == "t0"
    with pytest.raises(OSError, match="gone"):
        next(arriving)


def test_a_cpu_reads_in_place_and_in_turn():
    begun: list[int] = []
    one = stored(1, 2, 8)
    arriving = read_ahead([lambda: [one], partial(read, 5, begun)], CPU)
    assert next(arriving)[0] is one
    assert begun == []

# SPDX-License-Identifier: Apache-2.0
"""What the copy engine is told of a matrix: it fetches boxes of it into shared memory."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from tokenlight.kernels.cuda.launch import check

BoxMap = ctypes.c_uint64 * 16
"""A tensor map of the driver; a kernel's struct of one is aligned to 64 bytes."""
BOX_COLUMNS = 64
"""Of bfloat16: the 128 bytes within which pieces of 16 bytes are exchanged."""


@functools.lru_cache(maxsize=1024)
def box_map(address: int, num_rows: int, num_columns: int, box_rows: int) -> Any:
    """Of contiguous rows of bfloat16; rows outside the matrix are zeros.

    A box lies in rows of 128 bytes as tensor cores read them: of row r, piece i of 16 bytes is
    where piece i ^ (r % 8) would be.
    """
    from cuda.bindings import driver

    u64, u32 = driver.cuuint64_t, driver.cuuint32_t
    status, made = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        2,
        address,
        [u64(num_columns), u64(num_rows)],
        [u64(2 * num_columns)],
        [u32(BOX_COLUMNS), u32(box_rows)],
        [u32(1), u32(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    check(status, f"a tensor map of {num_rows} rows")
    return BoxMap(*(int(word) for word in made.opaque))

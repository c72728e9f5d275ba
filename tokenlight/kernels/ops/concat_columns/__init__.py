# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.concat_columns import cpu, reference
from tokenlight.kernels.ops.concat_columns.contract import concat_columns

__all__ = ["concat_columns", "cpu", "reference"]

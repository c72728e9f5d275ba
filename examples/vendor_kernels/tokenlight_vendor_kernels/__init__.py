# SPDX-License-Identifier: Apache-2.0
"""Kernels of other libraries under TokenLight's contracts: one plugin, one file, one library each.

They rank just below the tuned kernels that TokenLight has, so they are chosen where it has none,
and elsewhere once `tokenlight kernels tune` has measured them as faster.
"""

from tokenlight.kernels.contract import TUNED

RANK = TUNED - 1

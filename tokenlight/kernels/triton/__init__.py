# SPDX-License-Identifier: Apache-2.0
"""What Triton kernels of several ops share. The kernels are in the ops' folders.

Multiplications and additions are fused, and said to be: Triton changes what it does of itself with
its versions, and 3.9 warns of it. The environment's word counts where there is one.
"""

import os

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.write_latent import cpu, reference, shape
from tokenlight.kernels.ops.write_latent.contract import write_latent_

__all__ = ["cpu", "reference", "shape", "write_latent_"]

# SPDX-License-Identifier: Apache-2.0
"""One folder per op: contract, reference, implementations, cases."""

from typing import Any

from tokenlight.kernels.contract import Op
from tokenlight.kernels.ops.embedding import embedding
from tokenlight.kernels.ops.gelu_tanh_mul import gelu_tanh_mul
from tokenlight.kernels.ops.linear import linear
from tokenlight.kernels.ops.paged_attention import paged_attention
from tokenlight.kernels.ops.rms_norm import rms_norm
from tokenlight.kernels.ops.rope import rope_
from tokenlight.kernels.ops.sample import sample
from tokenlight.kernels.ops.silu_mul import silu_mul
from tokenlight.kernels.ops.softcap import softcap
from tokenlight.kernels.ops.write_kv import write_kv_

OPS: dict[str, Op[..., Any]] = {
    o.name: o
    for o in (
        embedding,
        gelu_tanh_mul,
        linear,
        paged_attention,
        rms_norm,
        rope_,
        sample,
        silu_mul,
        softcap,
        write_kv_,
    )
}

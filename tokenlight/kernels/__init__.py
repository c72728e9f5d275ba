# SPDX-License-Identifier: Apache-2.0
"""Op contracts and implementations; the only door to compiled kernels and vendor libraries.

Call an op as a function: `kernels.rms_norm(x_TD, weight_D, eps=1e-6)`. Shapes are in the names;
each contract has them.
"""

from tokenlight.kernels._cpu import PackQueue
from tokenlight.kernels.ahead import compile_ahead, compile_costs
from tokenlight.kernels.backends import load_backends, withdraw_row_dependent
from tokenlight.kernels.explain import explain, explain_tuning
from tokenlight.kernels.formats import FORMATS, Format
from tokenlight.kernels.formats.tile16 import TILE_ROWS
from tokenlight.kernels.machine import default_device
from tokenlight.kernels.ops import OPS
from tokenlight.kernels.ops.add import add
from tokenlight.kernels.ops.add_rms_norm import add_rms_norm
from tokenlight.kernels.ops.concat_columns import concat_columns
from tokenlight.kernels.ops.embedding import embedding
from tokenlight.kernels.ops.embedding_slice import embedding_slice
from tokenlight.kernels.ops.gather_rows import gather_rows
from tokenlight.kernels.ops.gelu_tanh_mul import gelu_tanh_mul
from tokenlight.kernels.ops.head_linear import head_linear
from tokenlight.kernels.ops.linear import linear
from tokenlight.kernels.ops.linear_add import linear_add
from tokenlight.kernels.ops.linear_silu_mul import linear_silu_mul
from tokenlight.kernels.ops.mla_attention import mla_attention
from tokenlight.kernels.ops.moe import moe
from tokenlight.kernels.ops.norm_linear import norm_linear
from tokenlight.kernels.ops.norm_linear_silu_mul import norm_linear_silu_mul
from tokenlight.kernels.ops.paged_attention import SHORT_TOKENS, paged_attention
from tokenlight.kernels.ops.rms_norm import rms_norm
from tokenlight.kernels.ops.rope import rope_
from tokenlight.kernels.ops.rope_angles import rope_angles
from tokenlight.kernels.ops.rope_write_kv import rope_write_kv_
from tokenlight.kernels.ops.route import route
from tokenlight.kernels.ops.sample import sample
from tokenlight.kernels.ops.scale import scale
from tokenlight.kernels.ops.silu_mul import silu_mul
from tokenlight.kernels.ops.softcap import softcap
from tokenlight.kernels.ops.sum_add_rms_norm import sum_add_rms_norm
from tokenlight.kernels.ops.to_float32 import to_float32
from tokenlight.kernels.ops.write_kv import write_kv_
from tokenlight.kernels.ops.write_latent import write_latent_
from tokenlight.kernels.pack import PackedLinear, pack_linear
from tokenlight.kernels.plugins import load_plugins
from tokenlight.kernels.threads import set_num_threads
from tokenlight.kernels.tuning import apply_default, ignore_tuning
from tokenlight.kernels.weight_memory import weight_memory

__all__ = [
    "FORMATS",
    "OPS",
    "SHORT_TOKENS",
    "TILE_ROWS",
    "Format",
    "PackQueue",
    "PackedLinear",
    "add",
    "add_rms_norm",
    "compile_ahead",
    "compile_costs",
    "concat_columns",
    "embedding",
    "embedding_slice",
    "explain",
    "explain_tuning",
    "gather_rows",
    "gelu_tanh_mul",
    "head_linear",
    "ignore_tuning",
    "linear",
    "linear_add",
    "linear_silu_mul",
    "mla_attention",
    "moe",
    "norm_linear",
    "norm_linear_silu_mul",
    "pack_linear",
    "paged_attention",
    "rms_norm",
    "rope_",
    "rope_angles",
    "rope_write_kv_",
    "route",
    "sample",
    "scale",
    "set_num_threads",
    "silu_mul",
    "softcap",
    "sum_add_rms_norm",
    "to_float32",
    "weight_memory",
    "withdraw_row_dependent",
    "write_kv_",
    "write_latent_",
]

load_backends(default_device())
load_plugins()
apply_default(default_device())

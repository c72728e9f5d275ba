# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.rope.contract import rope_


@rope_.implement("cpu", device="cpu", dtypes=F32, rank=TUNED)
def cpu(q_THd: Tensor, k_TKd: Tensor, cos_sin_Tr: Tensor) -> None:
    num_tokens, num_q_heads, head_dim = q_THd.shape
    num_k_heads, rotated = k_TKd.shape[1], cos_sin_Tr.shape[1]
    if (
        k_TKd.shape != (num_tokens, num_k_heads, head_dim)
        or cos_sin_Tr.shape[0] != num_tokens
        or rotated % 2
        or rotated > head_dim
        or not (k_TKd.dtype == cos_sin_Tr.dtype == torch.float32)
        or q_THd.stride()[1:] != (head_dim, 1)
        or k_TKd.stride()[1:] != (head_dim, 1)
        or not cos_sin_Tr.is_contiguous()
    ):
        raise ValueError(
            f"want float32 q and k with contiguous heads, and cos_sin [T, even and at most d], got "
            f"{list(q_THd.shape)}, {k_TKd.dtype} {list(k_TKd.shape)}, "
            f"{cos_sin_Tr.dtype} {list(cos_sin_Tr.shape)}"
        )
    _cpu.rope(
        q_THd.data_ptr(),
        k_TKd.data_ptr(),
        cos_sin_Tr.data_ptr(),
        num_tokens,
        num_q_heads,
        num_k_heads,
        head_dim,
        rotated,
        q_THd.stride(0),
        k_TKd.stride(0),
    )


@rope_.enter("cpu")
def entry(call: NativeCall) -> bool:
    q, k, cos_sin = call.operand(0), call.operand(1), call.operand(2)
    if not all(t.has_dense_rows() for t in (q, k, cos_sin)):
        return False
    call.program.rope(
        q.place,
        k.place,
        cos_sin.place,
        q.rows,
        q.shape[0],
        k.shape[0],
        q.shape[1],
        cos_sin.shape[0],
        q.strides[0],
        k.strides[0],
    )
    return True

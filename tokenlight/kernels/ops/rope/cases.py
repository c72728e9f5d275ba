# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part


def cases(device: str) -> list[Case]:
    g = generator(0)
    made = []
    for t, h, k, d, r in [(1, 9, 3, 64, 64), (7, 4, 4, 16, 16), (5, 2, 1, 80, 20), (0, 2, 1, 8, 8)]:
        qkv = torch.randn(t, (h + 2 * k) * d, generator=g).to(device)
        made.append(_case(f"fused {t}x{h}+{k}x{d} rotates {r}", qkv, h, k, r))
    q_THd, k_TKd = torch.randn(3, 4, 6, generator=g), torch.randn(3, 2, 6, generator=g)
    args = (q_THd.to(device), k_TKd.to(device), _cos_sin(3, 6).to(device))
    return [*made, Case(name="separate, 6 dims", args=args)]


def benches(device: str) -> list[Case]:
    g = generator(1)
    return [
        _case(f"{t} tokens", torch.randn(t, 15 * 64, generator=g).to(device), 9, 3, 64)
        for t in (1, 8, 512)
    ]


def parts(case: Case) -> list[Part]:
    num_tokens = case.args[0].shape[0]
    return [rows_part(case, rows, row_args=(0, 1, 2)) for rows in row_slices(num_tokens)]


def _cos_sin(num_tokens: int, rotated: int) -> torch.Tensor:
    angles = torch.arange(num_tokens)[:, None] * 0.7 ** torch.arange(rotated // 2) + 0.1
    return torch.cat([angles.cos(), angles.sin()], dim=-1).float()


def _case(name: str, qkv: torch.Tensor, h: int, k: int, rotated: int) -> Case:
    num_tokens, width = qkv.shape
    heads = qkv.view(num_tokens, h + 2 * k, width // (h + 2 * k))
    cos_sin_Tr = _cos_sin(num_tokens, rotated).to(qkv.device)
    return Case(
        name=name,
        args=(heads[:, :h], heads[:, h : h + k], cos_sin_Tr),
        activations=(0, 1),
        num_bytes=8 * num_tokens * (h + k) * rotated,
        num_flops=3 * num_tokens * (h + k) * rotated,
    )

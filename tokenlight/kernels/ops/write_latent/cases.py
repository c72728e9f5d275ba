# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import torch
from torch import Tensor

from tokenlight.kernels.case import Case, Part, generator, row_slices
from tokenlight.kernels.ops.paged_attention.cases import make_batch, pool_blocks

_MIXED = ((1, 1), (1, 30), (5, 5), (40, 61), (1, 16))


def cases(device: str) -> list[Case]:
    f32, f16, bf16 = torch.float32, torch.float16, torch.bfloat16
    made = [_case(_MIXED, 512, 64, dtype, device) for dtype in (f32, f16, bf16)]
    return [*made, _case(_MIXED, 24, 10, f16, device), _case((), 32, 16, f32, device)]


def benches(device: str) -> list[Case]:
    requests = {"1": ((1, 300),), "8": ((1, 300),) * 8, "512": ((512, 512),)}
    return [_case(r, 512, 64, torch.float16, device) for r in requests.values()]


def parts(case: Case) -> list[Part]:
    """Some tokens of one request at a time; what they wrote must be what the whole call wrote."""
    latent_TC, rotated_T1r, cache, positions_T, query_starts, block_table, slots = case.args
    made = []
    for r in range(len(slots)):
        start, stop = query_starts[r : r + 2].tolist()
        for cut in row_slices(stop - start):
            rows = slice(start + cut.start, start + cut.stop)
            starts = torch.tensor([0, rows.stop - rows.start], dtype=torch.int32)
            args = (
                *(latent_TC[rows], rotated_T1r[rows], cache, positions_T[rows]),
                *(starts.to(latent_TC.device), block_table, slots[r : r + 1]),
            )
            place, block_tokens = positions_T[rows].long(), cache.shape[2]
            blocks = block_table[slots[r].long(), place // block_tokens].long()
            pick = _picker(blocks, place % block_tokens)
            part = Case(name=f"{case.name}[{rows.start}:{rows.stop}]", args=args)
            made.append(Part(case=part, of_part=pick, of_whole=pick))
    return made


def _picker(blocks: Tensor, offsets: Tensor) -> Callable[[list[Tensor]], list[Tensor]]:
    return lambda outs: [out[blocks, :, offsets] for out in outs]


def _case(
    requests: tuple[tuple[int, int], ...],
    latent_dim: int,
    rotated_dim: int,
    dtype: torch.dtype,
    device: str,
) -> Case:
    g = generator(8)
    num_blocks = pool_blocks(requests, 16)
    batch = make_batch(requests, 16, num_blocks)
    positions = [p for n, kv in requests for p in range(kv - n, kv)]
    width = latent_dim + rotated_dim
    fused = torch.randn(len(positions), width + 3, generator=g) * 3
    args = (
        fused[:, :latent_dim],
        fused[:, latent_dim:width].unflatten(-1, (1, -1)),
        torch.randn(num_blocks, 1, 16, width, generator=g).to(dtype),
        torch.tensor(positions, dtype=torch.int32),
        batch.query_starts,
        batch.block_table,
        batch.slots,
    )
    return Case(
        name=f"{len(positions)} tokens of {latent_dim}+{rotated_dim} "
        f"{str(dtype).removeprefix('torch.')}",
        args=tuple(a.to(device) for a in args),
        rtol=0,
        atol=0,
        activations=(0, 1),
        num_bytes=len(positions) * width * (4 + dtype.itemsize),
    )

# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices
from tokenlight.kernels.ops.paged_attention.cases import make_batch, pool_blocks

_MIXED = ((1, 1), (1, 30), (5, 5), (40, 61), (1, 16))


def cases(device: str) -> list[Case]:
    dtypes = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn)
    made = [_case(_MIXED, 3, 64, 16, dtype, device) for dtype in dtypes]
    made.append(_case(_MIXED, 2, 10, 4, torch.float16, device))
    made.append(_case((), 2, 16, 4, torch.float16, device))
    return made


def benches(device: str) -> list[Case]:
    requests = {"1": ((1, 300),), "8": ((1, 300),) * 8, "512": ((512, 512),)}
    return [_case(r, 3, 64, 16, torch.float16, device) for r in requests.values()]


def parts(case: Case) -> list[Part]:
    """Some tokens of one request at a time; what they wrote must be what the whole call wrote."""
    k_TKd, v_TKd, k_cache, v_cache, positions_T, query_starts, block_table, slots = case.args
    made = []
    for r in range(len(slots)):
        start, stop = query_starts[r : r + 2].tolist()
        for cut in row_slices(stop - start):
            rows = slice(start + cut.start, start + cut.stop)
            starts = torch.tensor([0, rows.stop - rows.start], dtype=torch.int32)
            part = Case(
                name=f"{case.name}[{rows.start}:{rows.stop}]",
                args=(
                    *(k_TKd[rows], v_TKd[rows], k_cache, v_cache, positions_T[rows]),
                    *(starts.to(k_TKd.device), block_table, slots[r : r + 1]),
                ),
            )
            place = positions_T[rows].long()
            block_tokens = k_cache.shape[2]
            blocks = block_table[slots[r].long(), place // block_tokens].long()
            pick = _picker(blocks, place % block_tokens)
            made.append(Part(case=part, of_part=pick, of_whole=pick))
    return made


def _picker(blocks: torch.Tensor, offsets: torch.Tensor):  # type: ignore[no-untyped-def]
    return lambda outs: [out[blocks, :, offsets] for out in outs]


def _case(
    requests: tuple[tuple[int, int], ...],
    num_kv_heads: int,
    head_dim: int,
    block_tokens: int,
    dtype: torch.dtype,
    device: str,
) -> Case:
    g = generator(6)
    num_blocks = pool_blocks(requests, block_tokens)
    batch = make_batch(requests, block_tokens, num_blocks)
    positions = [p for n, kv in requests for p in range(kv - n, kv)]
    fused = torch.randn(len(positions), 3 * num_kv_heads, head_dim, generator=g) * 3
    fused[:, :, 0] *= 300  # beyond what float8 holds
    cache = torch.randn(num_blocks, num_kv_heads, block_tokens, head_dim, generator=g).to(dtype)
    args = (
        fused[:, num_kv_heads : 2 * num_kv_heads],
        fused[:, 2 * num_kv_heads :],
        cache,
        cache.flip(0).contiguous(),
        torch.tensor(positions, dtype=torch.int32),
        batch.query_starts,
        batch.block_table,
        batch.slots,
    )
    num_elements = 2 * len(positions) * num_kv_heads * head_dim
    return Case(
        name=f"{len(positions)} tokens of {num_kv_heads}x{head_dim}, blocks of {block_tokens}, "
        f"{str(dtype).removeprefix('torch.')}",
        args=tuple(a.to(device) for a in args),
        rtol=0,
        atol=0,
        activations=(0, 1),
        num_bytes=num_elements * (4 + cache.element_size()),
    )

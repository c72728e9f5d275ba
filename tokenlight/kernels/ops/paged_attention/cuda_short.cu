// SPDX-License-Identifier: Apache-2.0
// Attention of few queries to a short paged cache: a cluster of blocks for each tile and kv head.
//
// For steps none of whose queries lies at kShort or beyond; a row has the bits that `cuda.cu` gives
// it. A block takes a chunk. The blocks of a cluster send each other their sums, and each adds up its
// share of the numbers in the order of the chunks: one exchange, and nothing is written but the
// result. Keys and values go from memory to registers as they lie; lengths, the block table and the
// first keys that earlier steps wrote are read before the kernel ahead has ended.
#include "decode.cuh"

constexpr int kThreads = 32 * kTeam;
constexpr int kPieces = 4;  // of sixteen tokens, in a stage
static_assert(kShort / kShortChunks / 16 <= 32, "a lane knows the block of each piece of a chunk");

// Whose tile it is, if there is such a tile: the request and which of its tiles. All lanes call it;
// a lane reads a request, of 32 at a time.
struct Owner {
    Request of;
    int tile;
    bool is_found;
};
DEVICE Owner FindOwner(const AttentionParams& p, int tile, int lane) {
    Owner owner = {{0, 1, 1, 0}, 0, false};
    int base = 0, tiles = 0;
    if (p.queries_per_tile == 1 && p.num_requests > 32) {
        // A query is a tile, so the tokens before `base` are its tiles; a request of several queries
        // may put the tile before it.
        base = min(tile, p.num_requests - 1) & ~31;
        tiles = p.query_starts[base] - p.query_starts[0];
        if (tiles > tile) base = tiles = 0;
    }
    for (; base < p.num_requests; base += 32) {
        const int r = base + lane;
        Request of = {0, 0, 0, 0};
        int own_tiles = 0;
        if (r < p.num_requests) {
            of = ReadRequest(p, r);
            own_tiles = CountTiles(p, of);
        }
        int end = own_tiles;
#pragma unroll
        for (int step = 1; step < 32; step <<= 1) {
            const int other = __shfl_up_sync(FULL_WARP, end, step);
            if (lane >= step) end += other;
        }
        const u32 after = __ballot_sync(FULL_WARP, tiles + end > tile);
        if (after) {
            const int from = __ffs(after) - 1;
            owner.of.first_token = __shfl_sync(FULL_WARP, of.first_token, from);
            owner.of.num_queries = __shfl_sync(FULL_WARP, of.num_queries, from);
            owner.of.kv_len = __shfl_sync(FULL_WARP, of.kv_len, from);
            owner.of.slot = __shfl_sync(FULL_WARP, of.slot, from);
            owner.is_found = true;
            owner.tile = tile - tiles - __shfl_sync(FULL_WARP, end - own_tiles, from);
            break;
        }
        tiles += __shfl_sync(FULL_WARP, end, 31);
    }
    return owner;
}

constexpr int kSentBytes = 16 + 8;  // of a place

template <int kDim, int kRowTiles>
struct alignas(16) Shared {
    static constexpr int kPlaces = 2 * kRowTiles * kDim + kShortChunks;  // of four sums
    float sums[kTeam][8][kDim];
    float4 inbox[kPlaces];
    float2 inbox_stats[kPlaces];
    float2 stats[kTeam][8];
    u64 came;
};

// ---- the kernel --------------------------------------------------------------------------------------

template <int kDim, int kRowTiles>
DEVICE void Attend(const AttentionParams& p) {
    constexpr int kHalves = kDim / 64;
    constexpr bool kLoadsAhead = kRowTiles < 4;  // the next keys, before this stage's values are used
    extern __shared__ __align__(16) unsigned char dynamic[];
    auto& shared = *(Shared<kDim, kRowTiles>*)dynamic;

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int rank = Rank(), cluster = blockIdx.x / kShortChunks, head = cluster % p.num_kv_heads;
    const int group = p.group;

    // Lengths and tables of the step are older than the kernel before.
    const Owner owner = FindOwner(p, cluster / p.num_kv_heads, lane);
    const Request& of = owner.of;
    const Tile tile = FindTile(p, of, owner.tile);
    const int3 chunks = FindChunks(p, of, tile);
    const int active = min(chunks.y, kShortChunks);  // blocks of the cluster
    LetNextStart();
    if (!owner.is_found || rank >= active) {
        if (blockIdx.x == 0) WaitForInputs();  // one block at least: the next waits for us alone
        return;
    }

    const int num_rows = tile.count * group, num_places = num_rows * kDim / 4;
    const int shares = DivideUp(num_places, active);
    if (active > 1) {
        if (threadIdx.x == 0) {
            InitBarrier(&shared.came, 1);
            PublishBarriers();
            ArriveAndExpect(&shared.came,
                            kSentBytes * active * ((num_places - rank + active - 1) / active));
        }
        BeginToMeet();  // ours can be sent to
    }

    // Lane i knows the block of the chunk's i-th sixteen tokens. A block outside the pool is not
    // followed, nor is the table where a position is not short: the rows become NaN.
    const Chunk at = FindChunk(p, of, tile, chunks, rank);
    const bool is_long = at.seen + at.num_queries - 1 > kShort;
    const int of_lane = at.start + 16 * lane;
    int block = is_long ? -1 : 0;
    if (!is_long && of_lane < at.stop && of_lane + 16 > at.begin)
        block = p.block_table[(size_t)of.slot * p.table_stride + (of_lane >> p.block_shift)];
    const bool is_outside = __any_sync(FULL_WARP, block < 0 || block >= p.num_blocks);
    block = min(max(block, 0), p.num_blocks - 1);
    auto find_row = [&](int piece, int row) {
        const int b = __shfl_sync(FULL_WARP, block, piece);
        const int in_block = (at.start + 16 * piece) & ((1 << p.block_shift) - 1);
        const size_t of_head = (size_t)b * p.num_kv_heads + head;
        return ((of_head << p.block_shift) + in_block + row) * kDim;
    };

    const Slots slots = FindSlots(warp, g, t);
    uint4 k[kDim / 32][2], v[4][kHalves];
    auto load_keys = [&](int stage) {
        const bf16* keys =
            p.k + find_row(kPieces * stage + slots.key_piece, slots.key_row) + 8 * t;
#pragma unroll
        for (int c = 0; c < kDim / 32; ++c)
#pragma unroll
            for (int high = 0; high < 2; ++high)
                k[c][high] = LoadOnce(keys + 2 * high * kDim + 32 * c);
    };
    auto load_values = [&](int stage) {
        const int base = at.start + kStageTokens * stage;
        const bool whole = base >= at.begin && base + kStageTokens <= at.stop;
        const bf16* even = p.v + find_row(kPieces * stage + slots.even_piece, slots.row) + 8 * g;
        const bf16* odd = p.v + find_row(kPieces * stage + slots.odd_piece, slots.row + 1) + 8 * g;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int piece = (j & 1) ? slots.odd_piece : slots.even_piece;
            const int token = base + 16 * piece + slots.row + (j & 1) + 2 * (j >> 1);
            const bf16* values = ((j & 1) ? odd : even) + 2 * (j >> 1) * kDim;
#pragma unroll
            for (int h = 0; h < kHalves; ++h) {
                v[j][h] = make_uint4(0, 0, 0, 0);
                if (whole || (token >= at.begin && token < at.stop))
                    v[j][h] = LoadOnce(values + 64 * h);
            }
        }
    };
    const int first = (at.begin - at.start) / kStageTokens;
    const int last = DivideUp(at.stop - at.start, kStageTokens);
    // The kernel before writes what this step adds.
    const bool is_old =
        at.start + kStageTokens * (first + 1) <= of.kv_len - of.num_queries;
    if (is_old) load_keys(first), load_values(first);
    WaitForInputs();
    Queries<kDim, kRowTiles> queries;
    queries.shared = (bf16*)(dynamic + sizeof(Shared<kDim, kRowTiles>));
    queries.Load(p,
                 p.q + (size_t)(of.first_token + tile.first) * p.q_stride +
                     (size_t)head * group * kDim,
                 num_rows, g, t);
    if (!is_old) load_keys(first), load_values(first);
    if (!queries.kAreKept) __syncthreads();

    WarpSums<kDim, kRowTiles> sums;
    sums.Clear();
    for (int stage = first; stage < last; ++stage) {
        Scores<kDim, kRowTiles> scores;
        Multiply(scores, queries, k, g, t);
        if (kLoadsAhead && stage + 1 < last) load_keys(stage + 1);
        sums.Add(p, at, at.start + kStageTokens * stage, scores, v, slots, t);
        if (!kLoadsAhead && stage + 1 < last) load_keys(stage + 1);
        if (stage + 1 < last) load_values(stage + 1);
    }

    // The warps' sums, eight rows at a time; those of several blocks go to where they are added up.
    bf16* out = p.out + ((size_t)(of.first_token + tile.first) * p.num_heads +
                         (size_t)head * group) * kDim;
    const Exchange shown = {&shared.sums[0][0][0], shared.stats, 8};
    bool is_met = active == 1;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
        if (n && 8 * n >= num_rows) continue;
        if (n) __syncthreads();
        Show(shown, sums, n, is_outside, warp, g, t);
        __syncthreads();
        if (!is_met) MeetCluster();
        is_met = true;
        const int rows = min(8, num_rows - 8 * n);
        for (int i = threadIdx.x; i < rows * kDim / 4; i += kThreads) {
            const int row = i / (kDim / 4), dim = i % (kDim / 4) * 4;
            const Sums of_row = AddWarps<kDim>(shown, row, dim);
            if (active == 1) {
                WriteRow<kDim>(p, out, head, 8 * n + row, dim, of_row);
            } else {
                const int place = 2 * n * kDim + i, to = place % active;
                const int slot = rank * shares + place / active;
                const u32 barrier = Remote(&shared.came, to);
                Send(Remote(&shared.inbox[slot], to), of_row.y, barrier);
                Send(Remote(&shared.inbox_stats[slot], to), make_float2(of_row.m, of_row.l),
                     barrier);
            }
        }
    }
    if (active == 1) return;

    // Our share of the places, over the chunks.
    WaitBarrier(&shared.came, 0);
    for (int i = threadIdx.x; rank + active * i < num_places; i += kThreads) {
        const int place = rank + active * i;
        Sums of_row;
#pragma unroll
        for (int s = 0; s < kShortChunks; ++s)
            if (s < active) of_row.m = fmaxf(of_row.m, shared.inbox_stats[s * shares + i].x);
#pragma unroll
        for (int s = 0; s < kShortChunks; ++s)
            if (s < active) {
                const float2 stats = shared.inbox_stats[s * shares + i];
                Add(of_row, stats.x, stats.y, shared.inbox[s * shares + i]);
            }
        WriteRow<kDim>(p, out, head, place / (kDim / 4), place % (kDim / 4) * 4, of_row);
    }
}

#define ATTEND(name, dim, row_tiles, blocks)                                          \
    extern "C" __global__ void __cluster_dims__(kShortChunks, 1, 1)                   \
        __launch_bounds__(kThreads, blocks) name(const __grid_constant__ AttentionParams p) { \
        Attend<dim, row_tiles>(p);                                                    \
    }

ATTEND(attend_short_64_8, 64, 1, 3)
ATTEND(attend_short_64_16, 64, 2, 3)
ATTEND(attend_short_64_32, 64, 4, 2)
ATTEND(attend_short_128_8, 128, 1, 3)
ATTEND(attend_short_128_16, 128, 2, 2)
ATTEND(attend_short_128_32, 128, 4, 2)

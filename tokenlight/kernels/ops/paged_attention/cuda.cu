// SPDX-License-Identifier: Apache-2.0
// Attention of few queries to a long paged cache, in one launch.
//
// A request's positions are cut into segments whose bounds depend on nothing but the position: short
// ones first, longer ones later. A block of four warps takes a segment of one kv head for a tile of
// queries; the last block to end a tile adds up the segments, in their order. What a query does not
// see adds exact zeros, so its result depends on its own position alone: not on who shares the call,
// nor on how many queries its request has.
//
// Scores are kept transposed, keys by rows (a row is a query's head): the rows of a tile are the
// narrow side of the tensor core's product. Keys and values go from memory to registers as they lie:
// the order of dimensions in a product is free, and a pair of neighbouring tokens is two byte
// permutations away. No shared memory, no barrier before the segment's end.
#include "prelude.cuh"

struct AttentionParams {
    const bf16* q;    // [T, H, d], tokens q_stride apart
    const bf16* k;    // [B, K, P, d]
    const bf16* v;
    bf16* out;        // [T, H, d]
    const int* query_starts;
    const int* kv_lens;
    const int* block_table;
    const int* slots;
    const float* sinks;  // [H], or null
    float* partials;  // per item: a tile's rows of d sums, then per row the largest score and its sum
    int* counters;    // items taken, blocks done, then segments done per tile and head; left zero
    int num_requests, num_heads, num_kv_heads, block_shift, num_blocks, q_stride, table_stride;
    int queries_per_tile, rows_per_tile, window;
    float scale, softcap;
};

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kMaxRequests = 256;
constexpr float kNothing = -1e30f;  // the largest score of no score

// ---- segments: [0, 4K) by 128, to 16K by 512, to 64K by 1024, then by 2048 ----------------------

DEVICE int SegmentsBefore(int position) {  // how many begin before it
    if (position <= 4096) return (position + 127) >> 7;
    if (position <= 16384) return 32 + ((position - 4096 + 511) >> 9);
    if (position <= 65536) return 56 + ((position - 16384 + 1023) >> 10);
    return 104 + ((position - 65536 + 2047) >> 11);
}
DEVICE int SegmentStart(int i) {
    if (i <= 32) return i << 7;
    if (i <= 56) return 4096 + ((i - 32) << 9);
    if (i <= 104) return 16384 + ((i - 56) << 10);
    return 65536 + ((i - 104) << 11);
}

// One request's part of the launch.
struct Request {
    int first_token, num_queries, kv_len, first_segment, num_segments, num_tiles;
};

DEVICE Request ReadRequest(const AttentionParams& p, int r) {
    Request of;
    of.first_token = p.query_starts[r];
    of.num_queries = p.query_starts[r + 1] - of.first_token;
    of.kv_len = p.kv_lens[r];
    of.num_tiles = (of.num_queries + p.queries_per_tile - 1) / p.queries_per_tile;
    const int first_seen = of.kv_len - of.num_queries + 1 - p.window;
    of.first_segment = p.window && first_seen > 0 ? SegmentsBefore(first_seen + 1) - 1 : 0;
    of.num_segments = SegmentsBefore(of.kv_len) - of.first_segment;
    return of;
}

template <int kDim, int kRowTiles>
struct alignas(16) Shared {
    float sums[kWarps][8 * kRowTiles][kDim];
    float2 stats[kWarps][8 * kRowTiles];
    int item_ends[kMaxRequests];
    int tile_ends[kMaxRequests];
    int next;
    bool is_last;
};

// Where a row's dimension lies in `sums`: the exchange keeps a warp's stores on different banks.
DEVICE int Place(int row, int dim) { return dim ^ (((row >> 1) & 3) << 1); }

// Prefix sums of the items, and of the tiles times heads, of each request.
template <typename S>
DEVICE void CountItems(const AttentionParams& p, S& shared) {
    if (threadIdx.x >= 32) return;
    int items = 0, tiles = 0;
    for (int base = 0; base < p.num_requests; base += 32) {
        const int r = base + threadIdx.x;
        int own_items = 0, own_tiles = 0;
        if (r < p.num_requests) {
            const Request of = ReadRequest(p, r);
            own_tiles = of.num_tiles * p.num_kv_heads;
            own_items = own_tiles * of.num_segments;
        }
#pragma unroll
        for (int step = 1; step < 32; step <<= 1) {
            const int other_items = __shfl_up_sync(FULL_WARP, own_items, step);
            const int other_tiles = __shfl_up_sync(FULL_WARP, own_tiles, step);
            if (threadIdx.x >= step) own_items += other_items, own_tiles += other_tiles;
        }
        if (r < p.num_requests) {
            shared.item_ends[r] = items + own_items;
            shared.tile_ends[r] = tiles + own_tiles;
        }
        items += __shfl_sync(FULL_WARP, own_items, 31);
        tiles += __shfl_sync(FULL_WARP, own_tiles, 31);
    }
}

template <int kDim, int kRowTiles, bool kKeepQueries>
DEVICE void Attend(const AttentionParams& p) {
    constexpr int kChunks = kDim / 32;  // of 32 dimensions: two products each
    constexpr int kHalves = kDim / 64;  // of 64 dimensions: a line of a row of values
    constexpr bool kLoadsAhead = kRowTiles < 4;  // the next keys, before this turn's values are used
    constexpr int kQueryStride = kDim + 32;
    extern __shared__ __align__(16) unsigned char dynamic[];
    auto& shared = *(Shared<kDim, kRowTiles>*)dynamic;
    bf16* queries = (bf16*)(dynamic + sizeof(Shared<kDim, kRowTiles>));

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int group = p.num_heads / p.num_kv_heads;
    const int partial_floats = (p.rows_per_tile * (kDim + 2) + 3) & ~3;
    LetNextStart();
    WaitForInputs();
    CountItems(p, shared);
    __syncthreads();
    const int num_items = p.num_requests ? shared.item_ends[p.num_requests - 1] : 0;
    const bool takes_turns = num_items > (int)gridDim.x;

    for (int item = blockIdx.x; item < num_items;) {
        if (takes_turns && threadIdx.x == 0) shared.next = gridDim.x + atomicAdd(&p.counters[0], 1);

        // Whose item it is. Late segments, the long ones, come first.
        int low = 0, high = p.num_requests - 1;
        while (low < high) {
            const int middle = (low + high) / 2;
            if (shared.item_ends[middle] > item) high = middle; else low = middle + 1;
        }
        const Request of = ReadRequest(p, low);
        const int first_item = low ? shared.item_ends[low - 1] : 0;
        const int first_pair = low ? shared.tile_ends[low - 1] : 0;
        const int num_pairs = of.num_tiles * p.num_kv_heads;
        const int pair = (item - first_item) % num_pairs;
        const int head = pair % p.num_kv_heads, tile = pair / p.num_kv_heads;
        const int segment = of.first_segment + of.num_segments - 1 - (item - first_item) / num_pairs;
        const int first_query = tile * p.queries_per_tile;
        const int num_queries = min(p.queries_per_tile, of.num_queries - first_query);
        const int num_rows = num_queries * group;
        // Row (query i, head h) is i * group + h, and sees the positions before seen + i.
        const int seen = of.kv_len - of.num_queries + first_query + 1;
        const int stop = min(SegmentStart(segment + 1), seen + num_queries - 1);
        const int begin = max(SegmentStart(segment), p.window ? seen - p.window : 0);
        const int* table = p.block_table + (size_t)p.slots[low] * p.table_stride;

        const bf16* q = p.q + (size_t)(of.first_token + first_query) * p.q_stride +
                        (size_t)head * group * kDim;
        uint4 kept[kChunks];
        if (kKeepQueries) {
#pragma unroll
            for (int c = 0; c < kChunks; ++c) {
                kept[c] = make_uint4(0, 0, 0, 0);
                if (g < num_rows)
                    kept[c] = LoadShared16(q + (size_t)(g / group) * p.q_stride +
                                           (g % group) * kDim + 32 * c + 8 * t);
            }
        } else {
            for (int i = threadIdx.x; i < 8 * kRowTiles * kDim / 8; i += kThreads) {
                const int row = i / (kDim / 8), dim = i % (kDim / 8) * 8;
                uint4 some = make_uint4(0, 0, 0, 0);
                if (row < num_rows)
                    some = LoadShared16(q + (size_t)(row / group) * p.q_stride +
                                        (row % group) * kDim + dim);
                *(uint4*)(queries + row * kQueryStride + dim) = some;
            }
            __syncthreads();
        }

        // Lane i knows the block of the warp's i-th sixteen tokens: a segment has 32 at most.
        const int own = SegmentStart(segment) + 16 * warp;
        int block = 0;
        if (own + 64 * lane < stop && own + 64 * lane + 16 > begin)
            block = table[(own + 64 * lane) >> p.block_shift];
        // A block outside the pool is not followed: the rows become NaN.
        const bool is_outside = __any_sync(FULL_WARP, block < 0 || block >= p.num_blocks);
        block = min(max(block, 0), p.num_blocks - 1);
        auto place = [&](int i) {  // of the i-th sixteen tokens, in elements
            const int b = __shfl_sync(FULL_WARP, block, i);
            const int in_block = (own + 64 * i) & ((1 << p.block_shift) - 1);
            return ((((size_t)b * p.num_kv_heads + head) << p.block_shift) + in_block) * kDim;
        };

        float sums[kRowTiles][4 * kHalves][4] = {};
        float most[kRowTiles][2], total[kRowTiles][2] = {};
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) most[n][0] = most[n][1] = kNothing;

        uint4 k[kChunks][2];
        auto load_keys = [&](size_t at) {
#pragma unroll
            for (int c = 0; c < kChunks; ++c)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    k[c][half] = LoadOnce(p.k + at + (8 * half + g) * kDim + 32 * c + 8 * t);
        };
        int i = max(0, (begin - own) / 64);
        while (own + 64 * i + 16 <= begin) ++i;
        size_t at = 0;
        if (own + 64 * i < stop) load_keys(at = place(i));

        for (; own + 64 * i < stop; ++i) {
            const int base = own + 64 * i;
            const bool whole = base >= begin && base + 16 <= stop;
            uint4 v[4][kHalves];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int token = 2 * t + (j & 1) + 8 * (j >> 1);
#pragma unroll
                for (int h = 0; h < kHalves; ++h) {
                    v[j][h] = make_uint4(0, 0, 0, 0);
                    if (whole || (base + token >= begin && base + token < stop))
                        v[j][h] = LoadOnce(p.v + at + token * kDim + 64 * h + 8 * g);
                }
            }
            float score[kRowTiles][4] = {};
#pragma unroll
            for (int c = 0; c < kChunks; ++c)
#pragma unroll
                for (int n = 0; n < kRowTiles; ++n) {
                    const uint4 of_row =
                        kKeepQueries ? kept[c]
                                     : *(const uint4*)(queries + (8 * n + g) * kQueryStride +
                                                       32 * c + 8 * t);
                    Mma(score[n], k[c][0].x, k[c][1].x, k[c][0].y, k[c][1].y, of_row.x, of_row.y);
                    Mma(score[n], k[c][0].z, k[c][1].z, k[c][0].w, k[c][1].w, of_row.z, of_row.w);
                }
            if (kLoadsAhead && base + 64 < stop) load_keys(at = place(i + 1));

            const bool all_see = base + 16 <= seen && whole &&
                                 (!p.window || base >= seen + num_queries - 1 - p.window);
#pragma unroll
            for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    float s = score[n][j] * p.scale;
                    if (p.softcap != 0.0f) s = p.softcap * tanhf(s / p.softcap);
                    s *= kLog2e;
                    if (!all_see) {
                        const int position = base + 8 * (j / 2) + g;
                        const int row = 8 * n + 2 * t + j % 2, row_end = seen + row / group;
                        if (position >= row_end || (p.window && position < row_end - p.window))
                            s = -INFINITY;
                    }
                    score[n][j] = s;
                }
                float by[2];
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    float m = fmaxf(score[n][j], score[n][j + 2]);
                    m = fmaxf(m, __shfl_xor_sync(FULL_WARP, m, 4));
                    m = fmaxf(m, __shfl_xor_sync(FULL_WARP, m, 8));
                    m = fmaxf(m, __shfl_xor_sync(FULL_WARP, m, 16));
                    m = fmaxf(m, most[n][j]);
                    by[j] = Exp2(most[n][j] - m);
                    most[n][j] = m;
                    score[n][j] = Exp2(score[n][j] - m);
                    score[n][j + 2] = Exp2(score[n][j + 2] - m);
                    total[n][j] = __fmaf_rn(total[n][j], by[j], score[n][j] + score[n][j + 2]);
                }
#pragma unroll
                for (int j = 0; j < 4 * kHalves; ++j) {
                    sums[n][j][0] *= by[0], sums[n][j][1] *= by[1];
                    sums[n][j][2] *= by[0], sums[n][j][3] *= by[1];
                }
            }
            u32 weights[kRowTiles][2];
#pragma unroll
            for (int n = 0; n < kRowTiles; ++n) {
                weights[n][0] = Transpose8x8(Pack(score[n][0], score[n][1]));
                weights[n][1] = Transpose8x8(Pack(score[n][2], score[n][3]));
            }
#pragma unroll
            for (int h = 0; h < kHalves; ++h)
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const u32 v0 = (&v[0][h].x)[j], v1 = (&v[1][h].x)[j];
                    const u32 v2 = (&v[2][h].x)[j], v3 = (&v[3][h].x)[j];
                    const u32 a0 = __byte_perm(v0, v1, 0x5410), a1 = __byte_perm(v0, v1, 0x7632);
                    const u32 a2 = __byte_perm(v2, v3, 0x5410), a3 = __byte_perm(v2, v3, 0x7632);
#pragma unroll
                    for (int n = 0; n < kRowTiles; ++n)
                        Mma(sums[n][4 * h + j], a0, a1, a2, a3, weights[n][0], weights[n][1]);
                }
            if (!kLoadsAhead && base + 64 < stop) load_keys(at = place(i + 1));
        }

        // The warps' sums, side by side.
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
            const int row = 8 * n + 2 * t;
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                float l = total[n][j];
                l += __shfl_xor_sync(FULL_WARP, l, 4);
                l += __shfl_xor_sync(FULL_WARP, l, 8);
                l += __shfl_xor_sync(FULL_WARP, l, 16);
                if (is_outside) l = __int_as_float(0x7fffffff);
                if (g == 0) shared.stats[warp][row + j] = make_float2(most[n][j], l);
            }
#pragma unroll
            for (int j = 0; j < 4 * kHalves; ++j) {
                const int dim = Place(row, 64 * (j / 4) + 8 * g + 2 * (j % 4));
                *(float2*)&shared.sums[warp][row][dim] = make_float2(sums[n][j][0], sums[n][j][2]);
                *(float2*)&shared.sums[warp][row + 1][dim] =
                    make_float2(sums[n][j][1], sums[n][j][3]);
            }
        }
        __syncthreads();

        float* partial = p.partials + (size_t)item * partial_floats;
        const bool is_alone = of.num_segments == 1;
        bf16* out = p.out + ((size_t)(of.first_token + first_query) * p.num_heads +
                             (size_t)head * group) * kDim;
        auto write = [&](int row, int dim, float4 y, float scale) {
            *(uint2*)(out + ((size_t)(row / group) * p.num_heads + row % group) * kDim + dim) =
                make_uint2(Pack(y.x * scale, y.y * scale), Pack(y.z * scale, y.w * scale));
        };
        // One over the sum of a row's exponentials, its head's sink among them.
        auto share = [&](int row, float m, float l) {
            if (p.sinks) {
                const float sink = p.sinks[head * group + row % group] * kLog2e;
                l += Exp2(fminf(sink - m, 126.0f));
            }
            return 1.0f / l;
        };
        for (int place = threadIdx.x; place < num_rows * kDim / 4; place += kThreads) {
            const int row = place / (kDim / 4), dim = place % (kDim / 4) * 4;
            float m = kNothing, l = 0.0f;
#pragma unroll
            for (int v = 0; v < kWarps; ++v) m = fmaxf(m, shared.stats[v][row].x);
            float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (int v = 0; v < kWarps; ++v) {
                const float by = Exp2(shared.stats[v][row].x - m);
                const float2 a = *(const float2*)&shared.sums[v][row][Place(row, dim)];
                const float2 b = *(const float2*)&shared.sums[v][row][Place(row, dim + 2)];
                l += by * shared.stats[v][row].y;
                y.x += by * a.x, y.y += by * a.y, y.z += by * b.x, y.w += by * b.y;
            }
            if (is_alone) {
                write(row, dim, y, share(row, m, l));
            } else {
                *(float4*)(partial + row * kDim + dim) = y;
                if (dim == 0)
                    *(float2*)(partial + p.rows_per_tile * kDim + 2 * row) = make_float2(m, l);
            }
        }

        if (!is_alone) {
            int* done = p.counters + 2 + first_pair + pair;
            __syncthreads();
            if (threadIdx.x == 0) {
                __threadfence();
                shared.is_last = atomicAdd(done, 1) == of.num_segments - 1;
                if (shared.is_last) *done = 0;
                __threadfence();
            }
            __syncthreads();
            if (shared.is_last) {
                // The segments' partials lie num_pairs items apart, the last segment's first.
                const size_t step = (size_t)num_pairs * partial_floats;
                const int last_item = first_item + (of.num_segments - 1) * num_pairs + pair;
                const float* first = p.partials + (size_t)last_item * partial_floats;
                float* weight = &shared.sums[0][0][0];  // [segment][row]
                for (int row = warp; row < num_rows; row += kWarps) {
                    const float* stats = first + p.rows_per_tile * kDim + 2 * row;
                    float m = kNothing, l = 0.0f;
                    for (int s = lane; s < of.num_segments; s += 32)
                        m = fmaxf(m, __ldcg(stats - s * step));
#pragma unroll
                    for (int x = 16; x; x >>= 1) m = fmaxf(m, __shfl_xor_sync(FULL_WARP, m, x));
                    for (int s = lane; s < of.num_segments; s += 32) {
                        const float2 of_segment = __ldcg((const float2*)(stats - s * step));
                        const float by = Exp2(of_segment.x - m);
                        weight[s * num_rows + row] = by;
                        l += by * of_segment.y;
                    }
                    l = WarpSum(l);
                    if (lane == 0) shared.stats[0][row] = make_float2(m, l);
                }
                __syncthreads();
                for (int place = threadIdx.x; place < num_rows * kDim / 4; place += kThreads) {
                    const int row = place / (kDim / 4), dim = place % (kDim / 4) * 4;
                    float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                    const float* from = first + row * kDim + dim;
#pragma unroll 24
                    for (int s = 0; s < of.num_segments; ++s) {
                        const float4 part = __ldcg((const float4*)(from - s * step));
                        const float by = weight[s * num_rows + row];
                        y.x += by * part.x, y.y += by * part.y;
                        y.z += by * part.z, y.w += by * part.w;
                    }
                    const float2 stats = shared.stats[0][row];
                    write(row, dim, y, share(row, stats.x, stats.y));
                }
            }
        }
        __syncthreads();
        item = takes_turns ? shared.next : num_items;
        __syncthreads();
    }

    if (takes_turns && threadIdx.x == 0) {
        if (atomicAdd(&p.counters[1], 1) == (int)gridDim.x - 1)
            p.counters[0] = p.counters[1] = 0;
    }
}

#define ATTEND(name, dim, row_tiles, keep, blocks)                                    \
    extern "C" __global__ void __launch_bounds__(kThreads, blocks)                    \
        name(const __grid_constant__ AttentionParams p) {                             \
        Attend<dim, row_tiles, keep>(p);                                              \
    }

ATTEND(attend_64_8, 64, 1, true, 3)
ATTEND(attend_64_16, 64, 2, false, 3)
ATTEND(attend_64_32, 64, 4, false, 2)
ATTEND(attend_128_8, 128, 1, true, 3)
ATTEND(attend_128_16, 128, 2, false, 2)
ATTEND(attend_128_32, 128, 4, false, 2)

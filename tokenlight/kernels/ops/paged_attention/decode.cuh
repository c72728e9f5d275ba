// SPDX-License-Identifier: Apache-2.0
// Attention of few queries to a paged cache: the arithmetic of a row. `cuda.cu` and `cuda_short.cu`
// make the same steps in the same order, so a row has the same bits from either.
//
// A query's position says how long the chunks are that its positions are cut into; queries of one
// length of chunks make a tile. 64 tokens of a chunk are a stage, which four warps share. A warp adds
// up its tokens stage by stage, then the warps' sums are added in their order, then the chunks' in
// theirs. What a query does not see adds exact zeros, so its result depends on its own position alone:
// not on who shares the call, nor on how many queries its request has.
//
// Scores are kept transposed, keys by rows (a row is a query's head): the rows of a tile are the
// narrow side of the tensor core's product.
#pragma once
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
    float* partials;  // per item: a tile's rows of d sums, then per row the largest score and sum
    int* counters;    // items taken, blocks done, then chunks done per tile and head; left zero
    int num_requests, num_heads, num_kv_heads, group, block_shift, num_blocks, q_stride;
    int table_stride;
    int queries_per_tile, rows_per_tile, window;
    float scale, softcap;
    int chunks_shift;  // a long tile has 1 << chunks_shift chunks at most
};

constexpr int kTeam = 4;  // warps that share a stage
constexpr int kStageTokens = 64;
constexpr int kShort = 2048;      // a query at a position before it has so many chunks at most:
constexpr int kShortChunks = 8;
constexpr int kLeastShort = 2;    // stages of such a chunk, at least
constexpr int kLeast = 4;         // of others: an item costs about as much as one stage takes
constexpr float kNothing = -1e30f;  // the largest score of no score

DEVICE int DivideUp(int a, int b) { return (a + b - 1) / b; }

// ---- tiles and chunks ----------------------------------------------------------------------------

struct Request {
    int first_token, num_queries, kv_len, slot;
};
DEVICE Request ReadRequest(const AttentionParams& p, int r) {
    Request of;
    of.first_token = p.query_starts[r];
    of.num_queries = p.query_starts[r + 1] - of.first_token;
    of.kv_len = p.kv_lens[r];
    of.slot = p.slots[r];
    return of;
}

// Queries of a tile share a span of so many positions: their chunks are equally long.
DEVICE int SpanOf(const AttentionParams& p) {
    return min(kStageTokens << p.chunks_shift, kStageTokens * kShortChunks);
}
struct Tile { int first, count; };
DEVICE int CountTiles(const AttentionParams& p, const Request& of) {
    if (of.num_queries == 1) return 1;
    const int span = SpanOf(p), size = p.queries_per_tile;
    const int lead = min(of.num_queries, span - ((of.kv_len - of.num_queries) & (span - 1)));
    const int rest = of.num_queries - lead;
    return DivideUp(lead, size) + rest / span * DivideUp(span, size) +
           DivideUp(rest % span, size);
}
DEVICE Tile FindTile(const AttentionParams& p, const Request& of, int tile) {
    if (of.num_queries == 1) return {0, 1};
    const int span = SpanOf(p), size = p.queries_per_tile;
    const int lead = min(of.num_queries, span - ((of.kv_len - of.num_queries) & (span - 1)));
    const int rest = of.num_queries - lead, of_lead = DivideUp(lead, size);
    Tile at;
    if (tile < of_lead) {
        at.first = tile * size;
        at.count = min(size, lead - at.first);
        return at;
    }
    const int per_span = DivideUp(span, size);
    const int in_span = (tile - of_lead) / per_span * span;
    const int within = (tile - of_lead) % per_span * size;
    at.first = lead + in_span + within;
    at.count = min(size, min(span, rest - in_span) - within);
    return at;
}
// The chunks of a tile: first and count; and their length.
DEVICE int3 FindChunks(const AttentionParams& p, const Request& of, const Tile& at) {
    const int first = of.kv_len - of.num_queries + at.first;  // the position of the first query
    const int stages = first < kShort
                           ? max(kLeastShort, first / (kStageTokens * kShortChunks) + 1)
                           : max(kLeast, (first >> (6 + p.chunks_shift)) + 1);
    const int length = kStageTokens * stages;
    const int begin = p.window ? max(0, first + 1 - p.window) : 0;
    const int chunk = begin ? begin / length : 0;
    return make_int3(chunk, DivideUp(first + at.count, length) - chunk, length);
}

// What a tile's queries see of a chunk. Row (query i, head h) is i * group + h of those of the kv
// head, and sees the positions before seen + i.
struct Chunk {
    int seen, num_queries, start, begin, stop;
};
DEVICE Chunk FindChunk(const AttentionParams& p, const Request& of, const Tile& tile,
                       const int3& chunks, int order) {
    Chunk at;
    at.num_queries = tile.count;
    at.seen = of.kv_len - of.num_queries + tile.first + 1;
    at.start = (chunks.x + order) * chunks.z;
    at.begin = max(at.start, p.window ? at.seen - p.window : 0);
    at.stop = min(at.start + chunks.z, at.seen + tile.count - 1);
    return at;
}

// ---- a warp's tokens of a stage --------------------------------------------------------------------

// Slot s of a product's sixteen tokens (odd = s & 1, high = s / 8) is row 4 part + odd + 2 high of
// piece (s % 8 / 2 + 2 odd) % 4, of the four pieces of sixteen tokens: in shared memory no two lanes
// meet at a bank for keys, two at most for values. The order of dimensions and of tokens is free.
struct Slots {
    int key_piece, key_row;              // of this lane's key, and the row two further
    int even_piece, odd_piece, row;      // of its values: row of the even ones, odd ones follow
};
DEVICE Slots FindSlots(int part, int g, int t) {
    return {(g / 2 + 2 * (g & 1)) & 3, 4 * part + (g & 1), t, (t + 2) & 3, 4 * part};
}

// A tile's queries as products want them: in registers if they are few, else in shared memory.
template <int kDim, int kRowTiles>
struct Queries {
    static constexpr bool kAreKept = kRowTiles == 1;
    static constexpr int kStride = kDim + 32;
    uint4 kept[kAreKept ? kDim / 32 : 1];
    bf16* shared;

    // By 32 kTeam threads, which must meet before the queries are used if they are not kept.
    DEVICE void Load(const AttentionParams& p, const bf16* q, int num_rows, int g, int t) {
        const int group = p.group;
        if (kAreKept) {
#pragma unroll
            for (int c = 0; c < kDim / 32; ++c) {
                kept[c] = make_uint4(0, 0, 0, 0);
                if (g < num_rows)
                    kept[c] = LoadShared16(q + (size_t)(g / group) * p.q_stride +
                                           (g % group) * kDim + 32 * c + 8 * t);
            }
        } else {
            for (int i = threadIdx.x; i < 8 * kRowTiles * kDim / 8; i += 32 * kTeam) {
                const int row = i / (kDim / 8), dim = i % (kDim / 8) * 8;
                uint4 some = make_uint4(0, 0, 0, 0);
                if (row < num_rows)
                    some = LoadShared16(q + (size_t)(row / group) * p.q_stride +
                                        (row % group) * kDim + dim);
                *(uint4*)(shared + row * kStride + dim) = some;
            }
        }
    }
    DEVICE uint4 Of(int n, int c, int g, int t) const {
        return kAreKept ? kept[c] : *(const uint4*)(shared + (8 * n + g) * kStride + 32 * c + 8 * t);
    }
};

template <int kDim, int kRowTiles>
struct Scores {
    float low[kRowTiles][4], high[kRowTiles][4];  // of half of the dimensions each
};
template <int kDim, int kRowTiles>
DEVICE void Multiply(Scores<kDim, kRowTiles>& scores, const Queries<kDim, kRowTiles>& queries,
                     const uint4 (&k)[kDim / 32][2], int g, int t) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j) scores.low[n][j] = scores.high[n][j] = 0.0f;
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c)
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
            const uint4 of_row = queries.Of(n, c, g, t), even = k[c][0], odd = k[c][1];
            Mma(scores.low[n], even.x, odd.x, even.y, odd.y, of_row.x, of_row.y);
            Mma(scores.high[n], even.z, odd.z, even.w, odd.w, of_row.z, of_row.w);
        }
}

// Over the stages of a chunk: the largest scores, sums of exponentials and of weighted values.
template <int kDim, int kRowTiles>
struct WarpSums {
    static constexpr int kHalves = kDim / 64;
    float sums[kRowTiles][4 * kHalves][4];
    float most[kRowTiles][2], total[kRowTiles][2];

    DEVICE void Clear() {
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
            most[n][0] = most[n][1] = kNothing;
            total[n][0] = total[n][1] = 0.0f;
#pragma unroll
            for (int j = 0; j < 4 * kHalves; ++j)
                sums[n][j][0] = sums[n][j][1] = sums[n][j][2] = sums[n][j][3] = 0.0f;
        }
    }

    // The stage at position `base`; `v` is zero where a token is not of the chunk.
    DEVICE void Add(const AttentionParams& p, const Chunk& at, int base,
                    Scores<kDim, kRowTiles>& scores, const uint4 (&v)[4][kHalves],
                    const Slots& slots, int t) {
        const int group = p.group;
        const float scale = p.scale * kLog2e;
        const int key_token = 16 * slots.key_piece + slots.key_row;  // and + 2
        const bool whole = base >= at.begin && base + kStageTokens <= at.stop;
        const bool all_see = base + kStageTokens <= at.seen && whole &&
                             (!p.window || base >= at.seen + at.num_queries - 1 - p.window);
        auto& score = scores.low;
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
            for (int j = 0; j < 4; ++j)
                score[n][j] = __fmul_rn(score[n][j] + scores.high[n][j], scale);
            if (p.softcap != 0.0f) {
                const float cap = p.softcap * kLog2e, by = 1.0f / cap;
#pragma unroll
                for (int j = 0; j < 4; ++j) score[n][j] = cap * tanhf(score[n][j] * by);
            }
            if (!all_see) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const int position = base + key_token + 2 * (j / 2);
                    const int row = 8 * n + 2 * t + j % 2, row_end = at.seen + row / group;
                    if (position >= row_end || position >= at.stop || position < at.begin ||
                        (p.window && position < row_end - p.window))
                        score[n][j] = -INFINITY;
                }
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
    }
};

// ---- sums of a row, added up in their order --------------------------------------------------------

// The largest score, the sum of exponentials, four of the weighted sums of values.
struct Sums {
    float m = kNothing, l = 0.0f;
    float4 y = {0.0f, 0.0f, 0.0f, 0.0f};
};
DEVICE void AddWeighed(Sums& to, float by, float l, float4 y) {
    to.l = __fmaf_rn(by, l, to.l);
    to.y.x = __fmaf_rn(by, y.x, to.y.x), to.y.y = __fmaf_rn(by, y.y, to.y.y);
    to.y.z = __fmaf_rn(by, y.z, to.y.z), to.y.w = __fmaf_rn(by, y.w, to.y.w);
}
// `to.m` is the largest of all already.
DEVICE void Add(Sums& to, float m, float l, float4 y) { AddWeighed(to, Exp2(m - to.m), l, y); }

// Shared memory in which the warps show each other eight rows.
struct Exchange {
    float* sums;          // [warp][row][d]
    float2 (*stats)[8];  // [warp][row]
    int kept_rows;        // of a warp's eight, those that it shows
};
DEVICE int KeptRows(const AttentionParams& p) { return min(8, (p.rows_per_tile + 1) & ~1); }

// This warp's rows 8 n to 8 n + 7; NaN where a block was out of the pool.
template <int kDim, int kRowTiles>
DEVICE void Show(const Exchange& to, const WarpSums<kDim, kRowTiles>& of, int n, bool is_outside,
                 int warp, int g, int t) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        float l = of.total[n][j];
        l += __shfl_xor_sync(FULL_WARP, l, 4);
        l += __shfl_xor_sync(FULL_WARP, l, 8);
        l += __shfl_xor_sync(FULL_WARP, l, 16);
        if (is_outside) l = __int_as_float(0x7fffffff);
        if (g == 0) to.stats[warp][2 * t + j] = make_float2(of.most[n][j], l);
    }
    // An exchange keeps a warp's stores on different banks.
#pragma unroll
    for (int j = 0; j < 4 * (kDim / 64); ++j) {
        const int dim = (64 * (j / 4) + 8 * g + 2 * (j % 4)) ^ (2 * t);
        float* at = to.sums + (warp * to.kept_rows + 2 * t) * kDim + dim;
        if (2 * t >= to.kept_rows) continue;
        *(float2*)at = make_float2(of.sums[n][j][0], of.sums[n][j][2]);
        *(float2*)(at + kDim) = make_float2(of.sums[n][j][1], of.sums[n][j][3]);
    }
}
// What the warps have shown of four dimensions of a row.
template <int kDim>
DEVICE Sums AddWarps(const Exchange& shown, int row, int dim) {
    const int turned = row & 6;  // 2 (row / 2): of the lanes that stored it
    Sums of_row;
#pragma unroll
    for (int w = 0; w < kTeam; ++w) of_row.m = fmaxf(of_row.m, shown.stats[w][row].x);
#pragma unroll
    for (int w = 0; w < kTeam; ++w) {
        const float* from = shown.sums + (w * shown.kept_rows + row) * kDim;
        const float2 a = *(const float2*)(from + (dim ^ turned));
        const float2 b = *(const float2*)(from + ((dim + 2) ^ turned));
        Add(of_row, shown.stats[w][row].x, shown.stats[w][row].y, make_float4(a.x, a.y, b.x, b.y));
    }
    return of_row;
}

// What the sums of a row are multiplied with: its head's sink joins the sum of exponentials.
DEVICE float Weight(const AttentionParams& p, int head, int row, const Sums& of_row) {
    const int group = p.group;
    float l = of_row.l;
    if (p.sinks) {
        const float sink = p.sinks[head * group + row % group];
        l += Exp2(fminf(__fmaf_rn(sink, kLog2e, -of_row.m), 126.0f));
    }
    return 1.0f / l;
}
// The result of four dimensions of a row.
template <int kDim>
DEVICE void WriteRow(const AttentionParams& p, bf16* out, int head, int row, int dim,
                     const Sums& of_row) {
    const int group = p.group;
    const float by = Weight(p, head, row, of_row);
    *(uint2*)(out + ((size_t)(row / group) * p.num_heads + row % group) * kDim + dim) =
        make_uint2(Pack(of_row.y.x * by, of_row.y.y * by), Pack(of_row.y.z * by, of_row.y.w * by));
}

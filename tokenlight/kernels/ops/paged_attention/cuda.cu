// SPDX-License-Identifier: Apache-2.0
// Attention of few queries to a long paged cache, in one launch.
//
// A query's position says how long the chunks are that its positions are cut into, so that a long
// cache has as many of them as fill the multiprocessors; queries of one length of chunks make a
// tile. A block takes a chunk of one kv head for a tile at a time. One warp of it copies blocks of
// the cache into a ring of shared memory and is ahead by as much as the ring holds, over the ends
// of chunks too; four warps share each stage; the block that is the last to end a chunk of
// a tile adds them up in their order, in warps of their own if it has other chunks to take. What a query does not see adds
// exact zeros, so its result depends on its own position alone: not on who shares the call, nor on
// how many queries its request has.
//
// Scores are kept transposed, keys by rows (a row is a query's head): the rows of a tile are the
// narrow side of the tensor core's product. Keys and values are read as they lie: the order of
// dimensions and of tokens in a product is free, and is such that no two lanes meet at a bank.
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
    int num_requests, num_heads, num_kv_heads, block_shift, num_blocks, q_stride, table_stride;
    int queries_per_tile, rows_per_tile, window;
    float scale, softcap;
    int chunks_shift;  // a tile has 1 << chunks_shift chunks at most
};

constexpr int kStages = 6;                   // of the ring
constexpr int kTeam = 4;                     // warps that share a stage
constexpr int kTeams = 1;                    // that take turns
constexpr int kWarps = kTeam * kTeams;       // that compute
constexpr int kConsumers = 32 * kWarps;
constexpr int kMergers = 96;                 // threads that add up a tile's chunks
constexpr int kThreads = kConsumers + 32 + kMergers;  // and the warp that copies
constexpr int kQueued = kStages + 1;         // items that may be known ahead
constexpr int kStageTokens = 64;
constexpr int kLeast = 4;  // stages of a chunk, at least: an item costs about as much as one takes
constexpr int kMaxRequests = 256;
constexpr float kNothing = -1e30f;  // the largest score of no score
constexpr int kLast = 1, kOutside = 2;  // a stage: its item's last; with a block out of the pool

template <int kDim>
struct Layout {
    static constexpr int kRow = 2 * kDim;         // bytes
    static constexpr int kPiece = 16 * kRow;      // sixteen tokens
    static constexpr int kKeys = 4 * kPiece + 128;
    static constexpr int kStage = 2 * kKeys;
    // The pieces of a stage lie shifted against each other, so that lanes that read different
    // pieces at once read different banks.
    static DEVICE int Key(int piece) { return piece * kPiece + 64 * (piece >> 1); }
    static DEVICE int Value(int piece) { return kKeys + piece * (kPiece + 32); }
};

// A chunk of a head for a tile. Row (query i, head h) is i * group + h of those of the kv head, and
// sees the positions before seen + i.
struct Item {
    int first_token, first_query, num_queries, head, pair, num_pairs, first_item, first_pair;
    int seen, start, begin, stop, num_chunks, slot, order, item;
};

struct alignas(16) Shared {
    u64 full[kStages], empty[kStages];
    u64 ended[2], merged[2];  // items whose chunk is written, and those that are dealt with
    Item items[kQueued], done[2];
    int4 info[kStages];  // which of the block's items, which stage of it, kLast and kOutside
    float2 stats[kWarps][8];
    int4 requests[kMaxRequests];  // first token, queries, tokens in the cache, slot
    int item_ends[kMaxRequests];
    int tile_ends[kMaxRequests];
    int is_last;
};
static_assert(sizeof(Shared) == 7216, "the host asks for as much");

DEVICE void SyncMergers() { asm volatile("bar.sync 2, %0;" ::"n"(kMergers) : "memory"); }
DEVICE void SyncConsumers() { asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory"); }

// Of a warp's eight rows, those that it shows to the others.
DEVICE int KeptRows(const AttentionParams& p) { return min(8, (p.rows_per_tile + 1) & ~1); }

// Counts what a block has done; what it wrote before can be read by whoever sees the count.
DEVICE int TakeTicket(int* count) {
    int before;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before)
                 : "l"(count)
                 : "memory");
    return before;
}

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

// Queries of a tile share a span of 64 << chunks_shift positions, which says how long chunks are.
struct Tile { int first, count; };
DEVICE int CountTiles(const AttentionParams& p, const Request& of) {
    if (of.num_queries == 1) return 1;
    const int span = kStageTokens << p.chunks_shift, size = p.queries_per_tile;
    const int lead = min(of.num_queries, span - ((of.kv_len - of.num_queries) & (span - 1)));
    const int rest = of.num_queries - lead;
    return (lead + size - 1) / size + rest / span * ((span + size - 1) / size) +
           (rest % span + size - 1) / size;
}
DEVICE Tile FindTile(const AttentionParams& p, const Request& of, int tile) {
    if (of.num_queries == 1) return {0, 1};
    const int span = kStageTokens << p.chunks_shift, size = p.queries_per_tile;
    const int lead = min(of.num_queries, span - ((of.kv_len - of.num_queries) & (span - 1)));
    const int rest = of.num_queries - lead, of_lead = (lead + size - 1) / size;
    Tile at;
    if (tile < of_lead) {
        at.first = tile * size;
        at.count = min(size, lead - at.first);
        return at;
    }
    const int per_span = (span + size - 1) / size;
    const int in_span = (tile - of_lead) / per_span * span;
    const int within = (tile - of_lead) % per_span * size;
    at.first = lead + in_span + within;
    at.count = min(size, min(span, rest - in_span) - within);
    return at;
}
// The chunks of a tile: first and count; and their length.
DEVICE int3 FindChunks(const AttentionParams& p, const Request& of, const Tile& at) {
    const int first = of.kv_len - of.num_queries + at.first;  // the position of the first query
    const int length = kStageTokens * max(kLeast, (first >> (6 + p.chunks_shift)) + 1);
    const int begin = p.window ? max(0, first + 1 - p.window) : 0;
    const int chunk = begin ? begin / length : 0;
    return make_int3(chunk, (first + at.count + length - 1) / length - chunk, length);
}

DEVICE void CountItems(const AttentionParams& p, Shared& shared) {
    int items = 0, tiles = 0;
    const int lane = threadIdx.x % 32;
    for (int base = 0; base < p.num_requests; base += 32) {
        const int r = base + lane;
        int own_items = 0, own_tiles = 0;
        int4 kept;
        if (r < p.num_requests) {
            const Request of = ReadRequest(p, r);
            kept = make_int4(of.first_token, of.num_queries, of.kv_len, of.slot);
            const int num_tiles = CountTiles(p, of);
            own_tiles = num_tiles * p.num_kv_heads;
            own_items = own_tiles << p.chunks_shift;
            if (num_tiles == 1) own_items = own_tiles * FindChunks(p, of, FindTile(p, of, 0)).y;
        }
#pragma unroll
        for (int step = 1; step < 32; step <<= 1) {
            const int other_items = __shfl_up_sync(FULL_WARP, own_items, step);
            const int other_tiles = __shfl_up_sync(FULL_WARP, own_tiles, step);
            if (lane >= step) own_items += other_items, own_tiles += other_tiles;
        }
        if (r < p.num_requests) {
            shared.requests[r] = kept;
            shared.item_ends[r] = items + own_items;
            shared.tile_ends[r] = tiles + own_tiles;
        }
        items += __shfl_sync(FULL_WARP, own_items, 31);
        tiles += __shfl_sync(FULL_WARP, own_tiles, 31);
    }
}

DEVICE Item FindItem(const AttentionParams& p, const Shared& shared, int item) {
    int low = 0, high = p.num_requests - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (shared.item_ends[middle] > item) high = middle; else low = middle + 1;
    }
    const int4 kept = shared.requests[low];
    const Request of = {kept.x, kept.y, kept.z, kept.w};
    Item at;
    at.item = item;
    at.slot = of.slot;
    at.first_token = of.first_token;
    at.first_item = low ? shared.item_ends[low - 1] : 0;
    at.first_pair = low ? shared.tile_ends[low - 1] : 0;
    at.num_pairs = shared.tile_ends[low] - at.first_pair;
    at.order = (item - at.first_item) / at.num_pairs;
    at.pair = (item - at.first_item) % at.num_pairs;
    at.head = at.pair % p.num_kv_heads;
    const Tile tile = FindTile(p, of, at.pair / p.num_kv_heads);
    const int3 chunks = FindChunks(p, of, tile);
    at.first_query = tile.first;
    at.num_queries = tile.count;
    at.num_chunks = chunks.y;
    at.seen = of.kv_len - of.num_queries + tile.first + 1;
    at.start = (chunks.x + at.order) * chunks.z;
    at.begin = max(at.start, p.window ? at.seen - p.window : 0);
    at.stop = min(at.start + chunks.z, at.seen + tile.count - 1);
    if (at.order >= at.num_chunks) at.stop = at.begin;  // there is no such chunk
    return at;
}

template <int kDim>
DEVICE void WriteRow(const AttentionParams& p, bf16* out, int row, int dim, float4 y, float by) {
    const int group = p.num_heads / p.num_kv_heads;
    *(uint2*)(out + ((size_t)(row / group) * p.num_heads + row % group) * kDim + dim) =
        make_uint2(Pack(y.x * by, y.y * by), Pack(y.z * by, y.w * by));
}
// One over the sum of a row's exponentials, its head's sink among them.
DEVICE float Share(const AttentionParams& p, int head, int row, float m, float l) {
    if (p.sinks) {
        const int group = p.num_heads / p.num_kv_heads;
        const float sink = p.sinks[head * group + row % group];
        l += Exp2(fminf(__fmaf_rn(sink, kLog2e, -m), 126.0f));
    }
    return 1.0f / l;
}

// Whether it was the tile's last chunk that ended just now; asked once for each.
DEVICE bool EndChunk(const AttentionParams& p, const Item& at) {
    int* done = p.counters + 2 + at.first_pair + at.pair;
    const bool is_last = TakeTicket(done) == at.num_chunks - 1;
    if (is_last) *done = 0;
    return is_last;
}

// A tile's chunks, in their order; one that a query does not see adds zeros.
template <int kDim, int kNumThreads>
DEVICE void AddChunks(const AttentionParams& p, const Item& at, int thread) {
    const int group = p.num_heads / p.num_kv_heads;
    const int partial_floats = (p.rows_per_tile * (kDim + 2) + 3) & ~3;
    const int num_rows = at.num_queries * group;
    bf16* out = p.out + ((size_t)(at.first_token + at.first_query) * p.num_heads +
                         (size_t)at.head * group) * kDim;
    const size_t step = (size_t)at.num_pairs * partial_floats;
    const float* first = p.partials + (size_t)(at.first_item + at.pair) * partial_floats;
    for (int place = thread; place < num_rows * kDim / 4; place += kNumThreads) {
        const int row = place / (kDim / 4), dim = place % (kDim / 4) * 4;
        const float* from = first + row * kDim + dim;
        const float* stats = first + p.rows_per_tile * kDim + 2 * row;
        float m = kNothing, l = 0.0f;
        for (int s = 16; s < at.num_chunks; ++s) m = fmaxf(m, __ldcg(stats + s * step));
        float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int base = 0; base < at.num_chunks; base += 16) {
            float4 some[16];
            float2 stat[16];
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                some[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                stat[i] = make_float2(kNothing, 0.0f);
                if (base + i < at.num_chunks) {
                    stat[i] = __ldcg((const float2*)(stats + (base + i) * step));
                    some[i] = __ldcg((const float4*)(from + (base + i) * step));
                }
            }
            if (base == 0)
#pragma unroll
                for (int i = 0; i < 16; ++i) m = fmaxf(m, stat[i].x);
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                if (base + i >= at.num_chunks) continue;
                const float by = Exp2(stat[i].x - m);
                l = __fmaf_rn(by, stat[i].y, l);
                y.x = __fmaf_rn(by, some[i].x, y.x), y.y = __fmaf_rn(by, some[i].y, y.y);
                y.z = __fmaf_rn(by, some[i].z, y.z), y.w = __fmaf_rn(by, some[i].w, y.w);
            }
        }
        WriteRow<kDim>(p, out, row, dim, y, Share(p, at.head, row, m, l));
    }
}

template <int kDim>
DEVICE void Produce(const AttentionParams& p, Shared& shared, unsigned char* ring, int num_items) {
    using L = Layout<kDim>;
    const int lane = threadIdx.x % 32;
    const bool takes_turns = num_items > (int)gridDim.x;
    const bf16* cache = lane < 4 ? p.k : p.v;
    const int piece = lane & 3, place = lane < 4 ? L::Key(piece) : L::Value(piece);
    u32 turn = 0;
    int taken = 0;
    for (int item = blockIdx.x; item < num_items;) {
        int next = num_items;
        if (takes_turns && lane == 0) next = gridDim.x + atomicAdd(&p.counters[0], 1);
        const Item at = FindItem(p, shared, item);
        if (at.stop > at.begin) {
            if (lane == 0) shared.items[taken % kQueued] = at;
            ++taken;
        }
        const int* table = p.block_table + (size_t)at.slot * p.table_stride;
        const int first = (at.begin - at.start) / kStageTokens;
        const int last = (at.stop - at.start + kStageTokens - 1) / kStageTokens;
        // Lane i knows the block of the i-th sixteen tokens of eight stages.
        auto find = [&](int stage) {
            const int position = at.start + kStageTokens * stage + 16 * lane;
            return position < at.stop && position + 16 > at.begin ? table[position >> p.block_shift]
                                                                  : 0;
        };
        int blocks = 0, later = at.stop > at.begin ? find(first) : 0;
        for (int s = first; s < last && at.stop > at.begin; ++s, ++turn) {
            if (((s - first) & 7) == 0) {
                blocks = later;
                later = find(s + 8);
            }
            const int stage = turn % kStages;
            int block = __shfl_sync(FULL_WARP, blocks, 4 * ((s - first) & 7) + piece);
            const int position = at.start + kStageTokens * s + 16 * piece;
            const bool copies = position < at.stop && position + 16 > at.begin;
            const u32 copied = __ballot_sync(FULL_WARP, copies) & 15;
            const bool is_outside = block < 0 || block >= p.num_blocks;
            const int flags = (s == last - 1 ? kLast : 0) |
                              (__any_sync(FULL_WARP, copies && is_outside) ? kOutside : 0);
            block = min(max(block, 0), p.num_blocks - 1);
            if (turn >= kStages) WaitBarrier(&shared.empty[stage], (turn / kStages - 1) & 1);
            if (lane == 0) {
                shared.info[stage] = make_int4(taken - 1, s, flags, 0);
                ArriveAndExpect(&shared.full[stage], __popc(copied) * 2 * L::kPiece);
            }
            __syncwarp();
            if (lane < 8 && copies) {
                const int in_block = position & ((1 << p.block_shift) - 1);
                const size_t of_head = (size_t)block * p.num_kv_heads + at.head;
                const size_t from = ((of_head << p.block_shift) + in_block) * kDim;
                CopyBulk(ring + (size_t)stage * L::kStage + place, cache + from, L::kPiece,
                         &shared.full[stage]);
            }
        }
        item = __shfl_sync(FULL_WARP, next, 0);
    }
    const int stage = turn % kStages;
    if (turn >= kStages) WaitBarrier(&shared.empty[stage], (turn / kStages - 1) & 1);
    if (lane == 0) {
        shared.info[stage] = make_int4(-1, 0, 0, 0);
        Arrive(&shared.full[stage]);
        if (takes_turns && atomicAdd(&p.counters[1], 1) == (int)gridDim.x - 1)
            p.counters[0] = p.counters[1] = 0;
    }
}

template <int kDim, int kRowTiles>
DEVICE void Consume(const AttentionParams& p, Shared& shared, float* exchange,
                    const unsigned char* ring, bf16* queries, int num_items) {
    using L = Layout<kDim>;
    constexpr int kChunks = kDim / 32;  // of 32 dimensions: two products each
    constexpr int kHalves = kDim / 64;
    constexpr bool kKeepQueries = kRowTiles == 1;
    constexpr int kQueryStride = kDim + 32;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int part = warp % kTeam, team = warp / kTeam;
    const int group = p.num_heads / p.num_kv_heads;
    const int partial_floats = (p.rows_per_tile * (kDim + 2) + 3) & ~3;
    // Slot s of a product's sixteen tokens (odd = s & 1, high = s / 8) is row 4 part + odd + 2 high
    // of piece (s % 8 / 2 + 2 odd) % 4.
    const int key_piece = (g / 2 + 2 * (g & 1)) & 3, key_row = 4 * part + (g & 1);
    const int key_place = L::Key(key_piece) + key_row * L::kRow + 16 * t;
    const int even_place = L::Value(t) + 4 * part * L::kRow + 16 * g;
    const int odd_place = L::Value((t + 2) & 3) + (4 * part + 1) * L::kRow + 16 * g;
    const int key_token = 16 * key_piece + key_row;                    // and + 2
    const int even_token = 16 * t + 4 * part, odd_token = 16 * ((t + 2) & 3) + 4 * part + 1;
    const float scale = p.scale * kLog2e;
    const int kept_rows = KeptRows(p);

    const bool takes_turns = num_items > (int)gridDim.x;

    uint4 kept[kChunks];
    Item at = {};
    int num_rows = 0;

    auto load_queries = [&] {
        num_rows = at.num_queries * group;
        const bf16* q = p.q + (size_t)(at.first_token + at.first_query) * p.q_stride +
                        (size_t)at.head * group * kDim;
        if (kKeepQueries) {
#pragma unroll
            for (int c = 0; c < kChunks; ++c) {
                kept[c] = make_uint4(0, 0, 0, 0);
                if (g < num_rows)
                    kept[c] = LoadShared16(q + (size_t)(g / group) * p.q_stride +
                                           (g % group) * kDim + 32 * c + 8 * t);
            }
        } else {
            for (int i = threadIdx.x; i < 8 * kRowTiles * kDim / 8; i += kConsumers) {
                const int row = i / (kDim / 8), dim = i % (kDim / 8) * 8;
                uint4 some = make_uint4(0, 0, 0, 0);
                if (row < num_rows)
                    some = LoadShared16(q + (size_t)(row / group) * p.q_stride +
                                        (row % group) * kDim + dim);
                *(uint4*)(queries + row * kQueryStride + dim) = some;
            }
            SyncConsumers();
        }
    };

    // The first item is known before its bytes are here.
    int current = -1, num_ended = 0;
    if (num_items > (int)blockIdx.x) {
        at = FindItem(p, shared, blockIdx.x);
        load_queries();
        if (at.stop > at.begin) current = 0;
    }
    // Hands the item to the mergers, who may not be done with the one before the last.
    auto hand_over = [&] {
        const int slot = num_ended & 1;
        WaitBarrier(&shared.merged[slot], ((num_ended >> 1) & 1) ^ 1);
        if (threadIdx.x == 0) shared.done[slot] = at;
        __syncwarp();
        if (lane == 0) Arrive(&shared.ended[slot]);
        ++num_ended;
    };
    for (u32 turn = 0;;) {
        float sums[kRowTiles][4 * kHalves][4] = {};
        float most[kRowTiles][2], total[kRowTiles][2] = {};
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) most[n][0] = most[n][1] = kNothing;
        bool is_outside = false;
        int4 info;
        do {
            const int stage = turn % kStages;
            WaitBarrier(&shared.full[stage], (turn / kStages) & 1);
            ++turn;
            info = shared.info[stage];
            if (info.x < 0) {
                at.num_chunks = 0;
                hand_over();
                return;
            }
            if (info.x != current) {
                current = info.x;
                at = shared.items[current % kQueued];
                load_queries();
            }
            is_outside |= (info.z & kOutside) != 0;
            if (info.y % kTeams != team) {
                __syncwarp();
                if (lane == 0) ArriveAfter(&shared.empty[stage], info.z);
            } else {
                const unsigned char* data = ring + (size_t)stage * L::kStage;
                const int base = at.start + kStageTokens * info.y;
                const bool whole = base >= at.begin && base + kStageTokens <= at.stop;
                uint4 k[kChunks][2];
#pragma unroll
                for (int c = 0; c < kChunks; ++c)
#pragma unroll
                    for (int high = 0; high < 2; ++high)
                        k[c][high] =
                            *(const uint4*)(data + key_place + 2 * high * L::kRow + 64 * c);
                float score[kRowTiles][4] = {}, other[kRowTiles][4] = {};
#pragma unroll
                for (int c = 0; c < kChunks; ++c)
#pragma unroll
                    for (int n = 0; n < kRowTiles; ++n) {
                        const uint4 of_row =
                            kKeepQueries ? kept[c]
                                         : *(const uint4*)(queries + (8 * n + g) * kQueryStride +
                                                           32 * c + 8 * t);
                        const uint4 low = k[c][0], high = k[c][1];
                        Mma(score[n], low.x, high.x, low.y, high.y, of_row.x, of_row.y);
                        Mma(other[n], low.z, high.z, low.w, high.w, of_row.z, of_row.w);
                    }
                uint4 v[4][kHalves];
#pragma unroll
                for (int j = 0; j < 4; ++j)
#pragma unroll
                    for (int h = 0; h < kHalves; ++h)
                        v[j][h] = *(const uint4*)(data + ((j & 1) ? odd_place : even_place) +
                                                  2 * (j >> 1) * L::kRow + 128 * h);
                u32 read = 0;
#pragma unroll
                for (int j = 0; j < 4; ++j)
#pragma unroll
                    for (int h = 0; h < kHalves; ++h) read ^= v[j][h].x;
                if (!whole) {
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        const int token = base + ((j & 1) ? odd_token : even_token) + 2 * (j >> 1);
                        if (token < at.begin || token >= at.stop)
#pragma unroll
                            for (int h = 0; h < kHalves; ++h) v[j][h] = make_uint4(0, 0, 0, 0);
                    }
                }
                // Nobody may overwrite the stage before every lane has its part.
                read = __ballot_sync(FULL_WARP, (read ^ __float_as_uint(score[0][0]) ^
                                                 __float_as_uint(other[0][0])) == 0x9e3779b9u);
                if (lane == 0) ArriveAfter(&shared.empty[stage], read);

                const bool all_see = base + kStageTokens <= at.seen && whole &&
                                     (!p.window || base >= at.seen + at.num_queries - 1 - p.window);
#pragma unroll
                for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        float s = score[n][j] + other[n][j];
                        if (p.softcap != 0.0f)
                            s = p.softcap * tanhf(s * p.scale / p.softcap) * kLog2e;
                        else
                            s = __fmul_rn(s, scale);
                        if (!all_see) {
                            const int position = base + key_token + 2 * (j / 2);
                            const int row = 8 * n + 2 * t + j % 2, row_end = at.seen + row / group;
                            if (position >= row_end || position >= at.stop || position < at.begin ||
                                (p.window && position < row_end - p.window))
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
                        const u32 a0 = __byte_perm(v0, v1, 0x5410);
                        const u32 a1 = __byte_perm(v0, v1, 0x7632);
                        const u32 a2 = __byte_perm(v2, v3, 0x5410);
                        const u32 a3 = __byte_perm(v2, v3, 0x7632);
#pragma unroll
                        for (int n = 0; n < kRowTiles; ++n)
                            Mma(sums[n][4 * h + j], a0, a1, a2, a3, weights[n][0], weights[n][1]);
                    }
            }
        } while (!(info.z & kLast));

        // The end of the item: the warps' sums, eight rows at a time.
        float* partial = p.partials + (size_t)at.item * partial_floats;
        const bool is_alone = at.num_chunks == 1;
        bf16* out = p.out + ((size_t)(at.first_token + at.first_query) * p.num_heads +
                             (size_t)at.head * group) * kDim;
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
            if (n && 8 * n >= num_rows) continue;
            if (n) SyncConsumers();
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                float l = total[n][j];
                l += __shfl_xor_sync(FULL_WARP, l, 4);
                l += __shfl_xor_sync(FULL_WARP, l, 8);
                l += __shfl_xor_sync(FULL_WARP, l, 16);
                if (is_outside) l = __int_as_float(0x7fffffff);
                if (g == 0) shared.stats[warp][2 * t + j] = make_float2(most[n][j], l);
            }
            // An exchange keeps a warp's stores on different banks.
#pragma unroll
            for (int j = 0; j < 4 * kHalves; ++j) {
                const int dim = (64 * (j / 4) + 8 * g + 2 * (j % 4)) ^ (2 * t);
                float* to = exchange + (warp * kept_rows + 2 * t) * kDim + dim;
                if (2 * t >= kept_rows) continue;
                *(float2*)to = make_float2(sums[n][j][0], sums[n][j][2]);
                *(float2*)(to + kDim) = make_float2(sums[n][j][1], sums[n][j][3]);
            }
            SyncConsumers();
            const int rows = min(8, num_rows - 8 * n);
            for (int place = threadIdx.x; place < rows * kDim / 4; place += kConsumers) {
                const int row = place / (kDim / 4), dim = place % (kDim / 4) * 4;
                const int turned = row & 6;  // 2 (row / 2): of the lanes that stored it
                float m = kNothing, l = 0.0f;
#pragma unroll
                for (int w = 0; w < kWarps; ++w) m = fmaxf(m, shared.stats[w][row].x);
                float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
                for (int w = 0; w < kWarps; ++w) {
                    const float by = Exp2(shared.stats[w][row].x - m);
                    const float* from = exchange + (w * kept_rows + row) * kDim;
                    const float2 a = *(const float2*)(from + (dim ^ turned));
                    const float2 b = *(const float2*)(from + ((dim + 2) ^ turned));
                    l += by * shared.stats[w][row].y;
                    y.x += by * a.x, y.y += by * a.y, y.z += by * b.x, y.w += by * b.y;
                }
                const int whole_row = 8 * n + row;
                if (is_alone) {
                    WriteRow<kDim>(p, out, whole_row, dim, y, Share(p, at.head, whole_row, m, l));
                } else {
                    *(float4*)(partial + whole_row * kDim + dim) = y;
                    if (dim == 0)
                        *(float2*)(partial + p.rows_per_tile * kDim + 2 * whole_row) =
                            make_float2(m, l);
                }
            }
        }

        if (!is_alone && takes_turns) {
            hand_over();
        } else if (!is_alone) {  // there is no next item that would wait
            SyncConsumers();
            if (threadIdx.x == 0) shared.is_last = EndChunk(p, at);
            SyncConsumers();
            if (shared.is_last) AddChunks<kDim, kConsumers>(p, at, threadIdx.x);
        }
        SyncConsumers();
    }
}

template <int kDim>
DEVICE void Merge(const AttentionParams& p, Shared& shared) {
    const int thread = threadIdx.x - (kThreads - kMergers);
    for (u32 turn = 0;; ++turn) {
        const int slot = turn & 1;
        WaitBarrier(&shared.ended[slot], (turn >> 1) & 1);
        const Item at = shared.done[slot];
        if (at.num_chunks == 0) return;
        SyncMergers();
        if (thread == 0) {
            Arrive(&shared.merged[slot]);
            shared.is_last = EndChunk(p, at);
        }
        SyncMergers();
        if (shared.is_last) AddChunks<kDim, kMergers>(p, at, thread);
    }
}

template <int kDim, int kRowTiles>
DEVICE void Attend(const AttentionParams& p) {
    extern __shared__ __align__(128) unsigned char dynamic[];
    unsigned char* ring = dynamic;
    float* exchange = (float*)(dynamic + kStages * Layout<kDim>::kStage);  // [warp][row][d]
    Shared& shared = *(Shared*)(exchange + kWarps * KeptRows(p) * kDim);
    bf16* queries = (bf16*)(&shared + 1);
    LetNextStart();
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            InitBarrier(&shared.full[i], 1);
            InitBarrier(&shared.empty[i], kWarps);
        }
        for (int i = 0; i < 2; ++i) {
            InitBarrier(&shared.ended[i], kWarps);
            InitBarrier(&shared.merged[i], 1);
        }
        PublishBarriers();
    }
    WaitForInputs();
    if (threadIdx.x / 32 == kWarps) CountItems(p, shared);
    __syncthreads();
    const int num_items = p.num_requests ? shared.item_ends[p.num_requests - 1] : 0;
    if (threadIdx.x / 32 == kWarps)
        Produce<kDim>(p, shared, ring, num_items);
    else if (threadIdx.x / 32 > kWarps)
        Merge<kDim>(p, shared);
    else
        Consume<kDim, kRowTiles>(p, shared, exchange, ring, queries, num_items);
}

#define ATTEND(name, dim, row_tiles)                                                  \
    extern "C" __global__ void __launch_bounds__(kThreads, 1)                         \
        name(const __grid_constant__ AttentionParams p) {                             \
        Attend<dim, row_tiles>(p);                                                    \
    }

ATTEND(attend_64_8, 64, 1)
ATTEND(attend_64_16, 64, 2)
ATTEND(attend_64_32, 64, 4)
ATTEND(attend_128_8, 128, 1)
ATTEND(attend_128_16, 128, 2)
ATTEND(attend_128_32, 128, 4)

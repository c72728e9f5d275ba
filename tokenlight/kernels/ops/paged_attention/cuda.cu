// SPDX-License-Identifier: Apache-2.0
// Attention of few queries to a paged cache of any length, in one launch.
//
// A block takes a chunk of one kv head for a tile at a time. One warp of it copies blocks of the
// cache into a ring of shared memory and is ahead by as much as the ring holds, over the ends of
// chunks too; four warps share each stage; the block that is the last to end a chunk of a tile adds
// them up in their order, in warps of their own if it has other chunks to take. Keys and values are
// read as they lie.
#include "decode.cuh"

constexpr int kStages = 6;                   // of the ring
constexpr int kConsumers = 32 * kTeam;       // threads that compute
// That add up a tile's chunks: a ninth warp would leave fewer registers than 32 rows need.
template <int kRowTiles>
constexpr int kMergers = kRowTiles == 4 ? 96 : 128;
template <int kRowTiles>
constexpr int kThreads = kConsumers + 32 + kMergers<kRowTiles>;  // and the warp that copies
constexpr int kAhead = 16;                   // chunks whose sums are on their way
constexpr int kQueued = kStages + 2;         // items that may be known: one is at its end
constexpr int kMaxRequests = 256;
constexpr int kMostChunks = 128;
constexpr int kCopied = kStageTokens / 2;    // tokens that one copy takes at most
constexpr int kLast = 1, kOutside = 2;  // a stage: its item's last; with a block out of the pool

template <int kDim>
struct Layout {
    static constexpr int kRow = 2 * kDim;  // bytes
    static constexpr int kKeys = kStageTokens * kRow + 128;
    static constexpr int kStage = 2 * kKeys;
    // The halves of a stage lie shifted against each other, so that lanes that read keys of both at
    // once read different banks; of values, two lanes meet. A copy can take a half.
    static DEVICE int Key(int token) { return token * kRow + 64 * (token / kCopied); }
    static DEVICE int Value(int token) { return kKeys + Key(token); }
};

// A chunk of a head for a tile.
struct Item : Chunk {
    int first_token, first_query, head, pair, num_pairs, first_item, first_pair;
    int num_chunks, slot, order, item;
    int num_old;  // positions of the request that earlier steps wrote
};

struct alignas(16) Shared {
    u64 full[kStages], empty[kStages];
    u64 ended[2], merged[2];  // items whose chunk is written, and those that are dealt with
    int4 info[kStages];  // which of the block's items, which stage of it, kLast and kOutside
    float2 stats[kTeam][8];
    int4 requests[kMaxRequests];  // first token, queries, tokens in the cache, slot
    int item_ends[kMaxRequests];
    int tile_ends[kMaxRequests];
    Item items[kQueued], done[2];
    int is_last, num_items;
};
static_assert(sizeof(Shared) == 7312, "the host asks for as much");

DEVICE void SyncConsumers() { SyncSome<1, kConsumers>(); }

// Of a tile, where a request has several: some may not be there.
DEVICE int MaxChunksShift(const AttentionParams& p) {
    static_assert(kShortChunks == 8);
    return max(p.chunks_shift, 3);
}

DEVICE int CountItems(const AttentionParams& p, Shared& shared) {
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
            own_items = own_tiles << MaxChunksShift(p);
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
    return items;
}

DEVICE Item FindItem(const AttentionParams& p, const Shared& shared, int item) {
    int low = 0, high = p.num_requests - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (shared.item_ends[middle] > item) high = middle; else low = middle + 1;
    }
    const int4 kept = shared.requests[low];
    const Request of = {kept.x, kept.y, kept.z, kept.w};
    const int first_item = low ? shared.item_ends[low - 1] : 0;
    const int first_pair = low ? shared.tile_ends[low - 1] : 0;
    const int num_pairs = shared.tile_ends[low] - first_pair;
    const int order = (item - first_item) / num_pairs, pair = (item - first_item) % num_pairs;
    const Tile tile = FindTile(p, of, pair / p.num_kv_heads);
    const int3 chunks = FindChunks(p, of, tile);
    Item at;
    (Chunk&)at = FindChunk(p, of, tile, chunks, order);
    at.item = item;
    at.slot = of.slot;
    at.num_old = of.kv_len - of.num_queries;
    at.first_token = of.first_token;
    at.first_query = tile.first;
    at.first_item = first_item;
    at.first_pair = first_pair;
    at.num_pairs = num_pairs;
    at.order = order;
    at.pair = pair;
    at.head = pair % p.num_kv_heads;
    at.num_chunks = chunks.y;
    if (at.order >= at.num_chunks) at.stop = at.begin;  // there is no such chunk
    return at;
}

// Whether it was the tile's last chunk that ended just now; asked once for each.
DEVICE bool EndChunk(const AttentionParams& p, const Item& at) {
    int* done = p.counters + 2 + at.first_pair + at.pair;
    const bool is_last = TakeTicket(done) == at.num_chunks - 1;
    if (is_last) *done = 0;
    return is_last;
}

// A tile's chunks, in their order; one that a query does not see adds zeros. Some lanes have a row, four
// dimensions each: each knows what one of its chunks weighs, and the sums of kAhead are on their way.
template <int kDim, int kNumThreads>
DEVICE void AddChunks(const AttentionParams& p, const Item& at, int thread) {
    constexpr int kLanes = kDim / 4, kGroups = kMostChunks / kLanes;
    static_assert(kLanes % kAhead == 0 && kMostChunks % kLanes == 0);
    const int partial_floats = (p.rows_per_tile * (kDim + 2) + 3) & ~3;
    const int num_rows = at.num_queries * p.group;
    const size_t step = (size_t)at.num_pairs * partial_floats;
    const float* first = p.partials + (size_t)(at.first_item + at.pair) * partial_floats;
    bf16* out = p.out + ((size_t)(at.first_token + at.first_query) * p.num_heads +
                         (size_t)at.head * p.group) * kDim;
    const int lane = thread % kLanes, dim = 4 * lane;
#pragma unroll 1
    for (int part = thread; part / 32 * (32 / kLanes) < num_rows; part += kNumThreads) {
        const int own_row = part / kLanes, row = min(own_row, num_rows - 1);
        const float* stats = first + p.rows_per_tile * kDim + 2 * row + lane * step;
        const float* from = first + row * kDim + dim;
        float2 known[kGroups];
#pragma unroll
        for (int j = 0; j < kGroups; ++j) {
            known[j] = make_float2(kNothing, 0.0f);
            if (kLanes * j + lane < at.num_chunks) known[j] = __ldcg((const float2*)stats);
            stats += kLanes * step;
        }
        Sums of_row;
#pragma unroll 1
        for (int base = 0; base < at.num_chunks; base += kAhead) {
            float4 some[kAhead];
#pragma unroll
            for (int i = 0; i < kAhead; ++i, from += step) {
                some[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (base + i < at.num_chunks) some[i] = __ldcg((const float4*)from);
            }
            if (base == 0) {
#pragma unroll
                for (int j = 0; j < kGroups; ++j) of_row.m = fmaxf(of_row.m, known[j].x);
#pragma unroll
                for (int by = kLanes / 2; by; by >>= 1)
                    of_row.m = fmaxf(of_row.m, __shfl_xor_sync(FULL_WARP, of_row.m, by));
#pragma unroll
                for (int j = 0; j < kGroups; ++j) known[j].x = Exp2(known[j].x - of_row.m);
            }
            const int in_group = base % kLanes;
#pragma unroll
            for (int i = 0; i < kAhead; ++i) {
                const float by = __shfl_sync(FULL_WARP, known[0].x, in_group + i, kLanes);
                const float l = __shfl_sync(FULL_WARP, known[0].y, in_group + i, kLanes);
                if (base + i < at.num_chunks) AddWeighed(of_row, by, l, some[i]);
            }
            if (in_group + kAhead == kLanes) {
#pragma unroll
                for (int j = 1; j < kGroups; ++j) known[j - 1] = known[j];
            }
        }
        if (own_row < num_rows) WriteRow<kDim>(p, out, at.head, row, dim, of_row);
    }
}

// Lengths, tables and what earlier steps wrote are older than the kernel ahead: the ring is filled with
// the first item before that has ended.
template <int kDim>
DEVICE void Produce(const AttentionParams& p, Shared& shared, unsigned char* ring) {
    using L = Layout<kDim>;
    const int num_items = shared.num_items;
    const int lane = threadIdx.x % 32;
    const bool takes_turns = num_items > (int)gridDim.x;
    // A copy takes what lies in one block of the cache; some lanes copy keys and as many values.
    const int shift = min(p.block_shift, 5), copy_tokens = 1 << shift;
    static_assert(kCopied == 1 << 5);
    const int num_copies = kStageTokens >> shift, ahead = 32 / num_copies;
    const bool has_keys = lane < num_copies;
    const bf16* cache = has_keys ? p.k : p.v;
    const int piece = lane & (num_copies - 1);
    const int place = has_keys ? L::Key(piece << shift) : L::Value(piece << shift);
    u32 turn = 0;
    int taken = 0;
    bool has_waited = false;
    auto wait = [&] {
        if (!has_waited) WaitForInputs();
        has_waited = true;
    };
    // Lane i knows the block of the i-th copy of so many stages.
    auto find = [&](const Item& at, int stage) {
        const int position = at.start + kStageTokens * stage + (lane << shift);
        return position < at.stop && position + copy_tokens > at.begin
                   ? p.block_table[(size_t)at.slot * p.table_stride + (position >> p.block_shift)]
                   : 0;
    };
    int ticket = 0;
    bool has_ticket = false;
    // Nothing is done with a ticket before the next item is looked up: the warp would wait for it.
    auto take_ticket = [&] {
        if (takes_turns && !has_ticket && lane == 0) ticket = TakeNumber(&p.counters[0]);
        has_ticket = true;
    };
    int item = blockIdx.x;
    while (item < num_items) {
        const Item at = FindItem(p, shared, item);
        const bool is_there = at.stop > at.begin;
        const int first = (at.begin - at.start) / kStageTokens;
        const int last = is_there ? DivideUp(at.stop - at.start, kStageTokens) : first;
        int blocks = 0, later = is_there ? find(at, first) : 0;
        has_ticket = false;
        if (has_waited) take_ticket();
        if (is_there && lane == 0) shared.items[taken % kQueued] = at;
        taken += is_there;
        for (int s = first; s < last; ++s, ++turn) {
            if (((s - first) & (ahead - 1)) == 0) {
                blocks = later;
                later = find(at, s + ahead);
            }
            const int stage = turn % kStages;
            int block = __shfl_sync(FULL_WARP, blocks,
                                    num_copies * ((s - first) & (ahead - 1)) + piece);
            const int position = at.start + kStageTokens * s + (piece << shift);
            const bool copies = position < at.stop && position + copy_tokens > at.begin;
            const u32 copied = __ballot_sync(FULL_WARP, copies && has_keys);
            const bool is_outside = block < 0 || block >= p.num_blocks;
            const int flags = (s == last - 1 ? kLast : 0) |
                              (__any_sync(FULL_WARP, copies && is_outside) ? kOutside : 0);
            block = min(max(block, 0), p.num_blocks - 1);
            // The kernel ahead writes what this step adds.
            if (!has_waited &&
                (turn >= kStages || at.start + kStageTokens * (s + 1) > at.num_old)) {
                wait();
                take_ticket();
            }
            if (turn >= kStages) WaitBarrier(&shared.empty[stage], (turn / kStages - 1) & 1);
            if (lane == 0) {
                shared.info[stage] = make_int4(taken - 1, s, flags, 0);
                ArriveAndExpect(&shared.full[stage], __popc(copied) * 2 * copy_tokens * L::kRow);
            }
            __syncwarp();
            if (lane < 2 * num_copies && copies) {
                const int in_block = position & ((1 << p.block_shift) - 1);
                const size_t of_head = (size_t)block * p.num_kv_heads + at.head;
                const size_t from = ((of_head << p.block_shift) + in_block) * kDim;
                CopyBulkOnce(ring + (size_t)stage * L::kStage + place, cache + from, copy_tokens * L::kRow,
                             &shared.full[stage]);
            }
        }
        wait();
        take_ticket();
        item = takes_turns ? gridDim.x + __shfl_sync(FULL_WARP, ticket, 0) : num_items;
    }
    wait();
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
                    const unsigned char* ring, bf16* of_queries) {
    using L = Layout<kDim>;
    constexpr int kChunks = kDim / 32;  // of 32 dimensions: two products each
    constexpr int kHalves = kDim / 64;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int group = p.group;
    const int partial_floats = (p.rows_per_tile * (kDim + 2) + 3) & ~3;
    const Slots slots = FindSlots(warp, g, t);
    const int key_place = L::Key(16 * slots.key_piece) + slots.key_row * L::kRow + 16 * t;
    const int even_place = L::Value(16 * slots.even_piece) + slots.row * L::kRow + 16 * g;
    const int odd_place = L::Value(16 * slots.odd_piece) + (slots.row + 1) * L::kRow + 16 * g;
    const Exchange shown = {exchange, shared.stats, KeptRows(p)};

    Queries<kDim, kRowTiles> queries;
    queries.shared = of_queries;
    Chunk at = {};

    auto load_queries = [&](const Item& of) {
        at = of;
        const bf16* q = p.q + (size_t)(of.first_token + of.first_query) * p.q_stride +
                        (size_t)of.head * group * kDim;
        queries.Load(p, q, of.num_queries * group, g, t);
        if (!queries.kAreKept) SyncConsumers();
    };

    // The first item is known before its bytes are here.
    int current = -1, num_ended = 0;
    if (shared.num_items > (int)blockIdx.x) {
        const Item first = FindItem(p, shared, blockIdx.x);
        WaitForInputs();
        load_queries(first);
        if (at.stop > at.begin) current = 0;
    }
    // Hands the item to the mergers, who may not have taken the one before the last.
    auto hand_over = [&](bool is_end) {
        const int slot = num_ended & 1;
        WaitBarrier(&shared.merged[slot], ((num_ended >> 1) & 1) ^ 1);
        if (threadIdx.x == 0) {
            if (is_end)
                shared.done[slot].num_chunks = 0;
            else
                shared.done[slot] = shared.items[current % kQueued];
        }
        __syncwarp();
        if (lane == 0) Arrive(&shared.ended[slot]);
        ++num_ended;
    };
    for (u32 turn = 0;;) {
        WarpSums<kDim, kRowTiles> sums;
        sums.Clear();
        bool is_outside = false;
        int4 info;
        do {
            const int stage = turn % kStages;
            WaitBarrier(&shared.full[stage], (turn / kStages) & 1);
            ++turn;
            info = shared.info[stage];
            if (info.x < 0) {
                hand_over(true);
                return;
            }
            if (info.x != current) {
                current = info.x;
                load_queries(shared.items[current % kQueued]);
            }
            is_outside |= (info.z & kOutside) != 0;
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
            Scores<kDim, kRowTiles> scores;
            Multiply(scores, queries, k, g, t);
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
                    const int piece = (j & 1) ? slots.odd_piece : slots.even_piece;
                    const int token = base + 16 * piece + slots.row + (j & 1) + 2 * (j >> 1);
                    if (token < at.begin || token >= at.stop)
#pragma unroll
                        for (int h = 0; h < kHalves; ++h) v[j][h] = make_uint4(0, 0, 0, 0);
                }
            }
            // Nobody may overwrite the stage before every lane has its part.
            read = __ballot_sync(FULL_WARP, (read ^ __float_as_uint(scores.low[0][0]) ^
                                             __float_as_uint(scores.high[0][0])) == 0x9e3779b9u);
            if (lane == 0) ArriveAfter(&shared.empty[stage], read);

            sums.Add(p, at, base, scores, v, slots, t);
        } while (!(info.z & kLast));

        // The end of the item: the warps' sums, eight rows at a time.
        const Item& of = shared.items[current % kQueued];
        const int num_rows = at.num_queries * group;
        float* partial = p.partials + (size_t)of.item * partial_floats;
        const bool is_alone = of.num_chunks == 1;
        bf16* out = p.out + ((size_t)(of.first_token + of.first_query) * p.num_heads +
                             (size_t)of.head * group) * kDim;
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
            if (n && 8 * n >= num_rows) continue;
            if (n) SyncConsumers();
            Show(shown, sums, n, is_outside, warp, g, t);
            SyncConsumers();
            const int rows = min(8, num_rows - 8 * n);
            for (int place = threadIdx.x; place < rows * kDim / 4; place += kConsumers) {
                const int row = place / (kDim / 4), dim = place % (kDim / 4) * 4;
                const Sums of_row = AddWarps<kDim>(shown, row, dim);
                const int whole_row = 8 * n + row;
                if (is_alone) {
                    WriteRow<kDim>(p, out, of.head, whole_row, dim, of_row);
                } else {
                    *(float4*)(partial + whole_row * kDim + dim) = of_row.y;
                    if (dim == 0)
                        *(float2*)(partial + p.rows_per_tile * kDim + 2 * whole_row) =
                            make_float2(of_row.m, of_row.l);
                }
            }
        }

        if (!is_alone && shared.num_items > (int)gridDim.x) {
            hand_over(false);
        } else if (!is_alone) {  // there is no next item that would wait
            SyncConsumers();
            if (threadIdx.x == 0) shared.is_last = EndChunk(p, of);
            SyncConsumers();
            if (shared.is_last) AddChunks<kDim, kConsumers>(p, of, threadIdx.x);
        }
        SyncConsumers();
    }
}

template <int kDim, int kNumThreads>
DEVICE void Merge(const AttentionParams& p, Shared& shared) {
    const int thread = threadIdx.x - (kConsumers + 32);
    WaitForInputs();
    for (u32 turn = 0;; ++turn) {
        const int slot = turn & 1;
        WaitBarrier(&shared.ended[slot], (turn >> 1) & 1);
        const Item at = shared.done[slot];
        if (at.num_chunks == 0) return;
        SyncSome<2, kNumThreads>();
        if (thread == 0) {
            Arrive(&shared.merged[slot]);
            shared.is_last = EndChunk(p, at);
        }
        SyncSome<2, kNumThreads>();
        if (shared.is_last) AddChunks<kDim, kNumThreads>(p, at, thread);
    }
}

template <int kDim, int kRowTiles>
DEVICE void Attend(const AttentionParams& p) {
    extern __shared__ __align__(128) unsigned char dynamic[];
    unsigned char* ring = dynamic;
    float* exchange = (float*)(dynamic + kStages * Layout<kDim>::kStage);  // [warp][row][d]
    Shared& shared = *(Shared*)(exchange + kTeam * KeptRows(p) * kDim);
    bf16* queries = (bf16*)(&shared + 1);
    LetNextStart();
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            InitBarrier(&shared.full[i], 1);
            InitBarrier(&shared.empty[i], kTeam);
        }
        for (int i = 0; i < 2; ++i) {
            InitBarrier(&shared.ended[i], kTeam);
            InitBarrier(&shared.merged[i], 1);
        }
        PublishBarriers();
    }
    if (threadIdx.x / 32 == kTeam) {
        const int num_items = CountItems(p, shared);
        if (threadIdx.x % 32 == 0) shared.num_items = num_items;
    }
    __syncthreads();
    if (threadIdx.x / 32 == kTeam)
        Produce<kDim>(p, shared, ring);
    else if (threadIdx.x / 32 > kTeam)
        Merge<kDim, kMergers<kRowTiles>>(p, shared);
    else
        Consume<kDim, kRowTiles>(p, shared, exchange, ring, queries);
}

#define ATTEND(name, dim, row_tiles)                                                  \
    extern "C" __global__ void __launch_bounds__(kThreads<row_tiles>, 1)              \
        name(const __grid_constant__ AttentionParams p) {                             \
        Attend<dim, row_tiles>(p);                                                    \
    }

ATTEND(attend_64_8, 64, 1)
ATTEND(attend_64_16, 64, 2)
ATTEND(attend_64_32, 64, 4)
ATTEND(attend_128_8, 128, 1)
ATTEND(attend_128_16, 128, 2)
ATTEND(attend_128_32, 128, 4)

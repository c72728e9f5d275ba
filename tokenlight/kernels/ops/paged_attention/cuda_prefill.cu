// SPDX-License-Identifier: Apache-2.0
// Attention of many queries of a request to its paged cache: what a prompt does.
//
// A block has 128 rows, (query, head of the group) pairs of one kv head, and walks its request's keys,
// 176 at a time, from the first to the last: one softmax, so a row's bits depend on its position and
// its keys alone. Three warpgroups: the first looks blocks up and has the copy engine fetch them, two
// turns deep; the others multiply, 64 rows each. What a warpgroup queues in a turn is the scores of
// these keys and the sums of those before: so the tensor cores have work during a softmax, the other
// warpgroup's and one's own.
#include "prelude.cuh"

// A tensor map of the driver, opaque.
struct alignas(64) Map {
    u64 bits[16];
};

struct PrefillParams {
    Map k, v;         // [B * K * P rows, d], boxes of 64 dimensions x box_tokens
    const bf16* q;    // [T, H, d], tokens q_stride apart
    bf16* out;        // [T, H, d]
    const int* query_starts;
    const int* kv_lens;
    const int* block_table;
    const int* slots;
    int num_requests, num_heads, num_kv_heads, block_shift, num_blocks, q_stride;
    int table_stride, num_columns, num_slots, box_tokens, queries_per_tile;
    float scale;
};

constexpr int kRows = 128;  // of a block: 64 of each multiplying warpgroup
constexpr int kKeys = 176;  // at a time: what registers hold
constexpr int kStages = 2;
constexpr int kThreads = 384;
constexpr int kMultiplyingWarps = 8;
constexpr int kHalfBytes = kKeys * 128;  // 64 dimensions of every key, 128 bytes a row
// Named barriers; the first is __syncthreads. Each multiplying warpgroup has a kQueries of its own.
constexpr int kCleared = 1, kQueries = 2;

template <int kDim>
struct alignas(1024) Shared {
    unsigned char q[kDim / 64][kRows * 128];
    unsigned char k[kStages][kDim / 64][kHalfBytes];
    unsigned char v[kStages][kDim / 64][kHalfBytes];
    u64 k_full[kStages], v_full[kStages], k_free[kStages], v_free[kStages];
    int is_lost;  // a key is in no block of the pool
};

struct Work {
    int first_token, num_queries, kv_len, first_query, slot, kv_head;
};

// ---- instructions ----------------------------------------------------------------------------------

DEVICE void SyncNamed(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// What threads wrote to shared memory, seen by the tensor cores and the copy engine.
DEVICE void PublishShared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A box of rows; those outside the map are zeros.
DEVICE void CopyBox(void* to, const Map* map, int dim, int row, u64* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(SharedAddress(to)),
        "l"(map), "r"(dim), "r"(row), "r"(SharedAddress(barrier))
        : "memory");
}

// Shared memory of 128-byte rows, 16-byte pieces exchanged by row % 8; 8 rows are 1024 bytes. `lead`
// is the distance of 64-wide columns, which only operands with rows along the sum have.
DEVICE u64 Operand(const void* p, u32 lead) {
    return (u64)((SharedAddress(p) & 0x3ffff) >> 4) | (u64)(lead >> 4) << 16 |
           (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

DEVICE void BeginProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void CommitProducts() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
DEVICE void WaitProducts() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving what reads or writes `d` across this point.
template <int n>
DEVICE void Hold(float (&d)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int n>
DEVICE void Hold(u32 (&d)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

#define D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(d, i) D4(d, i), D4(d, i + 4), D4(d, i + 8), D4(d, i + 12)
#define D32(d) D16(d, 0), D16(d, 16)
#define D64(d) D32(d), D16(d, 32), D16(d, 48)
#define D88(d) D64(d), D16(d, 64), D4(d, 80), D4(d, 84)
#define LIST32                                                                        \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"  \
    "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define LIST64                                                                        \
    LIST32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,"    \
    "%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define LIST88                                                                        \
    LIST64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,"    \
    "%81,%82,%83,%84,%85,%86,%87"

// d = a b, or d += a b: a [64, 16] and b [176, 16] in shared memory, both along the sum.
DEVICE void Scores(float (&d)[kKeys / 2], u64 a, u64 b, int adds) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %90, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n176k16.f32.bf16.bf16 {" LIST88
        "}, %88, %89, adds, 1, 1, 0, 0;\n}"
        : D88(d)
        : "l"(a), "l"(b), "r"(adds));
}
// d += a b: a [64, 16] in registers, b [16, n] in shared memory, across the sum.
DEVICE void Sums(float (&d)[64], u32 a0, u32 a1, u32 a2, u32 a3, u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" LIST64
        "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
        : D64(d)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}
DEVICE void Sums(float (&d)[32], u32 a0, u32 a1, u32 a2, u32 a3, u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LIST32
        "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
        : D32(d)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

// ---- whose tile ------------------------------------------------------------------------------------

// False where the launch has more blocks than there are tiles.
DEVICE bool FindWork(const PrefillParams& p, Work& work) {
    // Late queries, which see the most, come first.
    int tile = (int)(gridDim.x / p.num_kv_heads) - 1 - (int)(blockIdx.x / p.num_kv_heads);
    work.kv_head = blockIdx.x % p.num_kv_heads;
    for (int r = 0; r < p.num_requests; ++r) {
        const int start = p.query_starts[r], num_queries = p.query_starts[r + 1] - start;
        const int num_tiles = (num_queries + p.queries_per_tile - 1) / p.queries_per_tile;
        if (tile < num_tiles) {
            work.first_token = start;
            work.num_queries = num_queries;
            work.kv_len = p.kv_lens[r];
            work.first_query = tile * p.queries_per_tile;
            work.slot = p.slots[r];
            return true;
        }
        tile -= num_tiles;
    }
    return false;
}

// ---- the warp that fetches -------------------------------------------------------------------------

template <int kDim>
DEVICE void Fetch(const PrefillParams& p, Shared<kDim>& shared, const Work& work, int num_turns) {
    const int lane = threadIdx.x;
    const int block_tokens = 1 << p.block_shift;
    const int num_boxes = kKeys / p.box_tokens;
    const bool has_slot = work.slot >= 0 && work.slot < p.num_slots;
    const int* table = p.block_table + (size_t)work.slot * p.table_stride;
    const int outside = p.num_blocks * p.num_kv_heads << p.block_shift;
    const auto row_of = [&](int turn) {  // of this lane's box
        const int key = turn * kKeys + lane * p.box_tokens;
        if (lane >= num_boxes || key >= work.kv_len) return outside;
        const int column = key >> p.block_shift;
        const int block = has_slot && column < p.num_columns ? table[column] : -1;
        if (block < 0 || block >= p.num_blocks) {
            shared.is_lost = 1;
            return outside;
        }
        return ((block * p.num_kv_heads + work.kv_head) << p.block_shift) +
               (key & (block_tokens - 1));
    };
    int row = row_of(0);
    __syncwarp();
    for (int turn = 0; turn < num_turns; ++turn) {
        const int stage = turn % kStages;
        const u32 parity = (turn / kStages + 1) & 1;
        const int next_row = turn + 1 < num_turns ? row_of(turn + 1) : 0;
        for (int is_v = 0; is_v < 2; ++is_v) {
            u64* full = is_v ? &shared.v_full[stage] : &shared.k_full[stage];
            WaitBarrier(is_v ? &shared.v_free[stage] : &shared.k_free[stage], parity);
            if (lane == 0) ArriveAndExpect(full, kDim / 64 * kHalfBytes);
            __syncwarp();
            if (lane < num_boxes) {
#pragma unroll
                for (int half = 0; half < kDim / 64; ++half) {
                    unsigned char* to = is_v ? shared.v[stage][half] : shared.k[stage][half];
                    CopyBox(to + lane * p.box_tokens * 128, is_v ? &p.v : &p.k, 64 * half, row,
                            full);
                }
            }
        }
        row = next_row;
    }
}

// ---- the warpgroups that multiply ------------------------------------------------------------------

template <int kDim>
DEVICE void Multiply(const PrefillParams& p, Shared<kDim>& shared, const Work& work,
                     int num_turns) {
    constexpr int kHalves = kDim / 64;
    const int group = p.num_heads / p.num_kv_heads;
    const int own = threadIdx.x / 128 - 1;  // which of the two
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const int g = lane / 4, t = lane % 4;
    const int rows = min(p.queries_per_tile, work.num_queries - work.first_query) * group;

    // Own queries, row by row as the tensor cores want them.
    const bf16* q = p.q + (size_t)(work.first_token + work.first_query) * p.q_stride +
                    (size_t)work.kv_head * group * kDim;
    for (int i = threadIdx.x % 128; i < 64 * kDim / 8; i += 128) {
        const int row = own * 64 + i / (kDim / 8), piece = i % (kDim / 8);
        uint4 some = make_uint4(0, 0, 0, 0);
        if (row < rows)
            some = LoadShared16(q + (size_t)(row / group) * p.q_stride + (row % group) * kDim +
                                8 * piece);
        *(uint4*)(shared.q[piece / 8] + row * 128 + ((piece ^ row) & 7) * 16) = some;
    }
    PublishShared();
    SyncNamed(kQueries + own, 128);

    // Rows g and g + 8 of the warp's sixteen; a row sees the positions below `sees`.
    const int row0 = own * 64 + 16 * warp + g, row1 = row0 + 8;
    const int before = work.kv_len - work.num_queries + work.first_query + 1;
    const int sees0 = before + row0 / group, sees1 = before + row1 / group;
    const float factor = p.scale * kLog2e;
    float max0 = -INFINITY, max1 = -INFINITY, sum0 = 0.0f, sum1 = 0.0f;
    float acc[kDim / 2], s[kKeys / 2];
    u32 weights[kKeys / 4];
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) acc[i] = 0.0f;

    const auto multiply_scores = [&](int stage) {
        BeginProducts();
#pragma unroll
        for (int k = 0; k < kDim / 16; ++k)
            Scores(s, Operand(shared.q[k / 4] + own * 64 * 128, 16) + k % 4 * 2,
                   Operand(shared.k[stage][k / 4], 16) + k % 4 * 2, k > 0);
        CommitProducts();
    };
    const auto multiply_sums = [&](int stage) {
#pragma unroll
        for (int k = 0; k < kKeys / 16; ++k)
            Sums(acc, weights[4 * k], weights[4 * k + 1], weights[4 * k + 2], weights[4 * k + 3],
                 Operand(shared.v[stage][0], kHalfBytes) + k * 2048 / 16);
        CommitProducts();
    };
    // Scores become weights in place; what earlier sums are to be multiplied by is returned.
    const auto soften = [&](int turn) {
        const int base = turn * kKeys + 2 * t;
        if (turn * kKeys + kKeys > before) {
#pragma unroll
            for (int i = 0; i < kKeys / 8; ++i) {
                const int key = base + 8 * i;
                if (key >= sees0) s[4 * i] = -INFINITY;
                if (key + 1 >= sees0) s[4 * i + 1] = -INFINITY;
                if (key >= sees1) s[4 * i + 2] = -INFINITY;
                if (key + 1 >= sees1) s[4 * i + 3] = -INFINITY;
            }
        }
        float top0 = s[0], top1 = s[2];
#pragma unroll
        for (int i = 0; i < kKeys / 8; ++i) {
            top0 = fmaxf(top0, fmaxf(s[4 * i], s[4 * i + 1]));
            top1 = fmaxf(top1, fmaxf(s[4 * i + 2], s[4 * i + 3]));
        }
#pragma unroll
        for (int step = 1; step < 4; step <<= 1) {
            top0 = fmaxf(top0, __shfl_xor_sync(FULL_WARP, top0, step));
            top1 = fmaxf(top1, __shfl_xor_sync(FULL_WARP, top1, step));
        }
        // The first key is seen by every row of a request: a maximum is finite from the first turn.
        top0 = fmaxf(max0, top0 * factor), top1 = fmaxf(max1, top1 * factor);
        const float2 fade = make_float2(Exp2(max0 - top0), Exp2(max1 - top1));
        max0 = top0, max1 = top1;
        float part0 = 0.0f, part1 = 0.0f;
#pragma unroll
        for (int i = 0; i < kKeys / 8; ++i) {
            s[4 * i] = Exp2(fmaf(s[4 * i], factor, -max0));
            s[4 * i + 1] = Exp2(fmaf(s[4 * i + 1], factor, -max0));
            s[4 * i + 2] = Exp2(fmaf(s[4 * i + 2], factor, -max1));
            s[4 * i + 3] = Exp2(fmaf(s[4 * i + 3], factor, -max1));
            part0 += s[4 * i] + s[4 * i + 1];
            part1 += s[4 * i + 2] + s[4 * i + 3];
        }
        sum0 = fmaf(sum0, fade.x, part0), sum1 = fmaf(sum1, fade.y, part1);
        return fade;
    };
    const auto pack = [&] {
#pragma unroll
        for (int i = 0; i < kKeys / 4; ++i) weights[i] = Pack(s[2 * i], s[2 * i + 1]);
    };

    WaitBarrier(&shared.k_full[0], 0);
    multiply_scores(0);
    WaitProducts<0>();
    Hold(s);
    if (lane == 0) Arrive(&shared.k_free[0]);
    soften(0);
    pack();

    for (int turn = 1; turn < num_turns; ++turn) {
        const int stage = turn % kStages, before_stage = (turn - 1) % kStages;
        WaitBarrier(&shared.k_full[stage], (turn / kStages) & 1);
        WaitBarrier(&shared.v_full[before_stage], ((turn - 1) / kStages) & 1);
        Hold(s);
        Hold(acc);
        Hold(weights);
        multiply_scores(stage);
        multiply_sums(before_stage);
        WaitProducts<1>();
        Hold(s);
        if (lane == 0) Arrive(&shared.k_free[stage]);
        const float2 fade = soften(turn);
        WaitProducts<0>();
        Hold(acc);
        Hold(weights);
        if (lane == 0) Arrive(&shared.v_free[before_stage]);
        // Once a large score was seen, few turns bring a larger one.
        if (__any_sync(FULL_WARP, fade.x != 1.0f || fade.y != 1.0f)) {
#pragma unroll
            for (int i = 0; i < kDim / 8; ++i) {
                acc[4 * i] *= fade.x, acc[4 * i + 1] *= fade.x;
                acc[4 * i + 2] *= fade.y, acc[4 * i + 3] *= fade.y;
            }
        }
        pack();
    }

    const int last = num_turns - 1, last_stage = last % kStages;
    WaitBarrier(&shared.v_full[last_stage], (last / kStages) & 1);
    // Rows that no query sees may hold anything, and a weight of zero does not silence a NaN.
    const int used = work.kv_len - last * kKeys;
    if (used < kKeys) {
        for (int i = threadIdx.x - 128; i < (kKeys - used) * kHalves * 8; i += 256) {
            const int row = used + i / (kHalves * 8), piece = i % (kHalves * 8);
            *(uint4*)(shared.v[last_stage][piece / 8] + row * 128 + piece % 8 * 16) =
                make_uint4(0, 0, 0, 0);
        }
        PublishShared();
        SyncNamed(kCleared, 256);
    }
    Hold(acc);
    Hold(weights);
    BeginProducts();
    multiply_sums(last_stage);
    WaitProducts<0>();
    Hold(acc);

#pragma unroll
    for (int step = 1; step < 4; step <<= 1) {
        sum0 += __shfl_xor_sync(FULL_WARP, sum0, step);
        sum1 += __shfl_xor_sync(FULL_WARP, sum1, step);
    }
    // No key is made up: NaN ends the request, and says so.
    const float whole = shared.is_lost ? __int_as_float(0x7fffffff) : 1.0f;
    const float share0 = whole / sum0, share1 = whole / sum1;
    const auto write = [&](int row, int first, float share) {
        if (row >= rows) return;
        bf16* out = p.out + (size_t)(work.first_token + work.first_query + row / group) *
                                p.num_heads * kDim +
                    (size_t)(work.kv_head * group + row % group) * kDim + 2 * t;
#pragma unroll
        for (int i = 0; i < kDim / 8; ++i)
            *(u32*)(out + 8 * i) = Pack(acc[4 * i + first] * share, acc[4 * i + first + 1] * share);
    };
    write(row0, 0, share0);
    write(row1, 2, share1);
}

template <int kDim>
DEVICE void Prefill(const PrefillParams& p) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    auto& shared = *(Shared<kDim>*)dynamic;
    if (threadIdx.x == 0) {
        shared.is_lost = 0;
        for (int i = 0; i < kStages; ++i) {
            InitBarrier(&shared.k_full[i], 1);
            InitBarrier(&shared.v_full[i], 1);
            InitBarrier(&shared.k_free[i], kMultiplyingWarps);
            InitBarrier(&shared.v_free[i], kMultiplyingWarps);
        }
        PublishBarriers();
    }
    LetNextStart();
    WaitForInputs();
    __syncthreads();
    Work work;
    if (!FindWork(p, work)) return;
    // Nothing beyond the tile's last query is fetched.
    const int stop = work.kv_len - work.num_queries +
                     min(work.first_query + p.queries_per_tile, work.num_queries);
    const int num_turns = max((stop + kKeys - 1) / kKeys, 1);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x < 32) Fetch(p, shared, work, num_turns);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        Multiply(p, shared, work, num_turns);
    }
}

#define PREFILL(name, dim)                                                                        \
    extern "C" __global__ void __launch_bounds__(kThreads, 1)                                     \
        name(const __grid_constant__ PrefillParams p) {                                           \
        Prefill<dim>(p);                                                                          \
    }

PREFILL(prefill_64, 64)
PREFILL(prefill_128, 128)

// SPDX-License-Identifier: Apache-2.0
// A token per row of logits, without a sort and without the host.
//
// A cluster of blocks holds a row in its shared memory. All that `sample` asks is where the running
// sum of the ordered probabilities passes a target: so the blocks count probability in buckets of
// equal width of the logarithm, the leading block finds the bucket where a target is passed, and
// only that bucket's tokens are gathered and ranked (with all before them, where those are few).
// Where `top_k` is small nothing is counted: the best token of each warp tells which can be kept, and
// only those are gathered. Probabilities are integers relative to their bucket's largest, so that no
// sum depends on an order and a row always gives the same token. A bucket with too many tokens (equal
// logits, say) is halved by order and id instead of sorted.
#include "prelude.cuh"

struct SampleParams {
    const float* logits;  // [S, V], rows stride apart
    const float* temperature;
    const int* top_k;
    const float* top_p;
    const float* min_p;
    const long long* seeds;
    const int* positions;
    int* ids;
    int vocabulary, stride, slice;  // tokens of a block: a multiple of 4
};

constexpr int kMaxBlocks = 8;  // of a cluster
constexpr int kThreads = 1024;
constexpr int kBuckets = 1024;  // a thread each
constexpr int kMaxGathered = 1024;
constexpr int kFew = 256;  // tokens are ranked by comparing each with each, else sorted
constexpr float kRange = 40.0f;  // powers of two below the largest: less counts as nothing
constexpr float kPerBucket = kBuckets / kRange;
constexpr float kUnit = 65536.0f;  // a bucket's largest probability

enum Command { kGather, kCompare, kDone };

struct Shared {
    u32 mass[kBuckets];
    u32 count[kBuckets];
    // The leader's: sums before each bucket, the gathered tokens, answers of the other blocks.
    double mass_before[kBuckets + 1];
    u32 count_before[kBuckets + 1];
    u32 all_count[kBuckets];
    double all_mass[kBuckets];
    u64 gathered[kMaxGathered];
    u32 weights[kMaxGathered];  // bucket and mass of each
    u64 found_mass;
    u32 found_count;
    u64 best[kMaxBlocks];
    __align__(16) u32 keys[32 * kMaxBlocks];  // of each warp's best
    u32 least_key;
    double warp_mass[32];
    u32 warp_count[32];
    u64 warp_best[32];
    // From the leader to all.
    int command, first_bucket, bucket;
    u64 at_least;
    int chosen;
    double answer;
    u64 answer_order;
};

constexpr int kStateBytes = 49008;  // before the tokens in a block's memory
static_assert(sizeof(Shared) <= kStateBytes && kStateBytes % 16 == 0);

// ---- clusters --------------------------------------------------------------------------------------

DEVICE void ClusterSync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}
DEVICE void ClusterArrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
DEVICE void ClusterWait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DEVICE u32 RemoteLoad(u32 address) {
    u32 x;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}
DEVICE void RemoteStore(u32 address, u32 x) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}
DEVICE void RemoteStore(u32 address, u64 x) {
    asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(address), "l"(x) : "memory");
}
DEVICE u32 RemoteAdd(u32 address, u32 x) {
    u32 old;
    asm volatile("atom.shared::cluster.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "r"(address), "r"(x)
                 : "memory");
    return old;
}
DEVICE void RemoteAdd(u32 address, u64 x) {
    asm volatile("red.shared::cluster.add.u64 [%0], %1;" ::"r"(address), "l"(x) : "memory");
}

// ---- order and probability -------------------------------------------------------------------------

// Larger for what comes first: larger logits, then lower ids.
DEVICE u64 Order(float logit, u32 id) {
    const u32 bits = __float_as_uint(logit + 0.0f);
    const u32 key = bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
    return (u64)key << 32 | (0xffffffffu - id);
}
DEVICE float LogitOf(u64 order) {
    const u32 key = (u32)(order >> 32);
    return __uint_as_float(key ^ (key >> 31 ? 0x80000000u : 0xffffffffu));
}

struct Weight {
    int bucket;  // kBuckets: no weight
    u32 mass;
};
DEVICE Weight Weigh(float logit, float most, float per_logit) {
    const float below = (most - logit) * per_logit;
    Weight w = {kBuckets, 0};
    if (below < kRange) {
        const float x = below * kPerBucket;
        w.bucket = min((int)x, kBuckets - 1);
        w.mass = (u32)(Exp2((w.bucket - x) / kPerBucket) * kUnit + 0.5f);
    }
    return w;
}
DEVICE double Scale(int bucket) {  // of a bucket's masses
    const float power = bucket / kPerBucket, whole = floorf(power);
    return (double)Exp2(whole - power) * (double)__int_as_float((111 - (int)whole) << 23);
}
DEVICE u32 Join(Weight w) { return (u32)w.bucket << 17 | w.mass; }
DEVICE int BucketOf(u32 joined) { return joined >> 17; }
DEVICE u32 MassOf(u32 joined) { return joined & 0x1ffff; }

DEVICE u64 Mix(u64 z) {  // the finaliser of SplitMix64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// A block's part of a row, and what is told of it.
struct Row {
    const float* slice;
    int num_tokens, first_id, num_blocks;
    float most, per_logit;
};

// What the leader has asked of every block.
DEVICE void Obey(Shared& s, const Row& row) {
    const int bucket = s.bucket;
    if (s.command == kGather) {
        const u32 counter = Remote(&s.found_count, 0);
        const u32 list = Remote(s.gathered, 0), weights = Remote(s.weights, 0);
        const int first = s.first_bucket;
        for (int i = threadIdx.x; i < row.num_tokens; i += kThreads) {
            const float logit = row.slice[i];
            const Weight w = Weigh(logit, row.most, row.per_logit);
            if (w.bucket < first || w.bucket > bucket) continue;
            const u32 place = RemoteAdd(counter, 1u);
            if (place >= kMaxGathered) continue;
            RemoteStore(list + 8 * place, Order(logit, row.first_id + i));
            RemoteStore(weights + 4 * place, Join(w));
        }
        return;
    }
    u64 mass = 0;
    u32 count = 0;
    for (int i = threadIdx.x; i < row.num_tokens; i += kThreads) {
        const float logit = row.slice[i];
        const Weight w = Weigh(logit, row.most, row.per_logit);
        if (w.bucket == bucket && Order(logit, row.first_id + i) >= s.at_least) {
            mass += w.mass;
            ++count;
        }
    }
#pragma unroll
    for (int step = 16; step; step >>= 1) {
        mass += __shfl_xor_sync(FULL_WARP, mass, step);
        count += __shfl_xor_sync(FULL_WARP, count, step);
    }
    if (threadIdx.x % 32 == 0 && count) {
        RemoteAdd(Remote(&s.found_mass, 0), mass);
        RemoteAdd(Remote(&s.found_count, 0), count);
    }
}

// The leader's side of a command; all its threads come here.
DEVICE void Ask(Shared& s, const Row& row, int command, int first_bucket, int bucket,
                u64 at_least) {
    __syncthreads();
    if (threadIdx.x == 0) s.found_count = 0, s.found_mass = 0;
    if (threadIdx.x < row.num_blocks) {
        RemoteStore(Remote(&s.command, threadIdx.x), (u32)command);
        RemoteStore(Remote(&s.first_bucket, threadIdx.x), (u32)first_bucket);
        RemoteStore(Remote(&s.bucket, threadIdx.x), (u32)bucket);
        RemoteStore(Remote(&s.at_least, threadIdx.x), at_least);
    }
    ClusterSync();
    if (command == kDone) return;
    Obey(s, row);
    ClusterSync();
}

enum Target { kCount, kMassReached, kMassPassed, kNotBelow };

struct Place {
    double mass;  // up to and with the token
    u64 order;    // of the token
};

// What the leader's list holds.
struct Gathered {
    int last_bucket;  // with all before it; -1: one bucket alone
    u32 count;
};

// Where the prefix of a bucket that `ends` ends, when few tokens are gathered: a thread for each.
template <typename Ends>
DEVICE Place Rank(Shared& s, u32 num_gathered, int bucket, double before, Ends ends) {
    __syncthreads();
    if (threadIdx.x == 0) s.answer = before, s.answer_order = 0;
    __syncthreads();
    // Four lanes for a token, a quarter of the others each.
    static_assert(4 * kFew <= kThreads);
    const u32 token = threadIdx.x / 4, part = threadIdx.x % 4;
    if (threadIdx.x / 32 * 8 < num_gathered) {
        const u32 own = token < num_gathered ? s.weights[token] : 0;
        const u64 order = token < num_gathered ? s.gathered[token] : 0;
        u32 mass = 0, count = 0, size = 0;
        u64 next = 0;  // the token after this one in the order
        for (u32 i = part; i < num_gathered; i += 4) {
            const u32 other = s.weights[i];
            const u64 at = s.gathered[i];
            if (BucketOf(other) != bucket) continue;
            ++size;
            if (at >= order) {
                mass += MassOf(other);
                ++count;
            } else if (at > next) {
                next = at;
            }
        }
#pragma unroll
        for (int step = 1; step < 4; step <<= 1) {
            mass += __shfl_xor_sync(FULL_WARP, mass, step);
            count += __shfl_xor_sync(FULL_WARP, count, step);
            size += __shfl_xor_sync(FULL_WARP, size, step);
            next = max(next, __shfl_xor_sync(FULL_WARP, next, step));
        }
        if (part == 0 && token < num_gathered && BucketOf(own) == bucket &&
            ends(mass - MassOf(own), mass, count, order, next, count == size)) {
            s.answer = before + mass * Scale(bucket);
            s.answer_order = order;
        }
    }
    __syncthreads();
    return {s.answer, s.answer_order};
}

// The first token at which the running count or mass satisfies the target, tokens in order.
// `target` is a count for kCount, a mass for kMass*, a logit for kNotBelow (the last not below it).
DEVICE Place Find(Shared& s, const Row& row, Gathered& have, Target what, double target) {
    __syncthreads();
    if (threadIdx.x == 0) s.chosen = what == kNotBelow ? -1 : kBuckets;
    __syncthreads();
    for (int b = threadIdx.x; b < kBuckets; b += kThreads) {
        if (s.all_mass[b] == 0.0) continue;
        const double end = s.mass_before[b + 1];
        if (what == kNotBelow) {
            if (b == Weigh((float)target, row.most, row.per_logit).bucket) s.chosen = b;
        } else if (what == kCount ? s.count_before[b + 1] >= target
                   : what == kMassReached ? end >= target
                                          : end > target) {
            atomicMin(&s.chosen, b);
        }
    }
    __syncthreads();
    int bucket = s.chosen;
    if (what == kNotBelow && bucket < 0) {  // no token near: all the buckets before it are kept
        const int edge = Weigh((float)target, row.most, row.per_logit).bucket;
        return {s.mass_before[edge], 0};
    }
    if (bucket == kBuckets) {  // only by rounding: the last token there is
        if (threadIdx.x == 0) s.chosen = 0;
        __syncthreads();
        for (int b = threadIdx.x; b < kBuckets; b += kThreads)
            if (s.all_mass[b] != 0.0) atomicMax(&s.chosen, b);
        __syncthreads();
        bucket = s.chosen;
    }
    const double before = s.mass_before[bucket];
    const u32 count_before = s.count_before[bucket];
    const float lowest = (float)target;
    // Whether a prefix with this mass and count, ending with this token, has got there.
    auto is_there = [&](double sum, u32 count) {
        if (what == kCount) return (double)(count_before + count) >= target;
        return what == kMassReached ? sum >= target : sum > target;
    };

    if (bucket > have.last_bucket) {
        const bool from_first = s.count_before[bucket + 1] <= kFew;
        Ask(s, row, kGather, from_first ? 0 : bucket, bucket, 0);
        have = {from_first ? bucket : -1, s.found_count};
    }
    const u32 n = have.count;
    if (n <= kFew) {
        return Rank(s, n, bucket, before,
                    [&](u32 mass_before, u32 mass, u32 count, u64 order, u64 next, bool is_last) {
                        if (what == kNotBelow)
                            return LogitOf(order) >= lowest &&
                                   (is_last || LogitOf(next) < lowest);
                        const double scale = Scale(bucket);
                        const bool was_there = count > 1 && is_there(before + mass_before * scale, count - 1);
                        return !was_there && (is_last || is_there(before + mass * scale, count));
                    });
    }
    if (n <= kMaxGathered) {
        int size = 32;
        while (size < n) size *= 2;
        for (int i = n + threadIdx.x; i < size; i += kThreads) s.gathered[i] = 0;
        __syncthreads();
        for (int width = 2; width <= size; width *= 2)
            for (int step = width / 2; step; step /= 2) {
                for (int i = threadIdx.x; i < size / 2; i += kThreads) {
                    const int a = 2 * i - (i & (step - 1)), b = a + step;
                    const u64 x = s.gathered[a], y = s.gathered[b];
                    const bool descends = (a & width) == 0;
                    if ((x < y) == descends) s.gathered[a] = y, s.gathered[b] = x;
                }
                __syncthreads();
            }
        if (threadIdx.x < 32) {
            const double scale = Scale(bucket);
            u32 mass = 0;
            Place place = {before, 0};
            bool is_done = false;
            for (int base = 0; base < n && !is_done; base += 32) {
                const int i = base + threadIdx.x;
                const u64 order = s.gathered[i];
                u32 sum = i < n ? Weigh(LogitOf(order), row.most, row.per_logit).mass : 0;
#pragma unroll
                for (int step = 1; step < 32; step <<= 1) {
                    const u32 other = __shfl_up_sync(FULL_WARP, sum, step);
                    if (threadIdx.x >= step) sum += other;
                }
                sum += mass;
                const bool ends = i < n && (what == kNotBelow ? LogitOf(order) < lowest
                                                              : is_there(before + sum * scale, i + 1));
                const u32 ending = __ballot_sync(FULL_WARP, ends);
                // kNotBelow ends before the first token that is below.
                int last = ending ? __ffs(ending) - 1 - (what == kNotBelow) : min(n - base, 32u) - 1;
                is_done = ending != 0;
                if (last >= 0) {
                    place.mass = before + __shfl_sync(FULL_WARP, sum, last) * scale;
                    place.order = __shfl_sync(FULL_WARP, order, last);
                }
                mass = __shfl_sync(FULL_WARP, sum, 31);
            }
            if (threadIdx.x == 0) s.answer = place.mass, s.answer_order = place.order;
        }
        __syncthreads();
        return {s.answer, s.answer_order};
    }

    // The largest order from which on the tokens get there, bit by bit.
    const double scale = Scale(bucket);
    u64 order = 0, mass = 0;
    if (what == kNotBelow) {
        order = Order(lowest, 0xffffffffu);
        Ask(s, row, kCompare, bucket, bucket, order);
        mass = s.found_mass;
    } else {
        for (int bit = 63; bit >= 0; --bit) {
            const u64 tried = order | 1ull << bit;
            Ask(s, row, kCompare, bucket, bucket, tried);
            if (is_there(before + (double)s.found_mass * scale, s.found_count))
                order = tried, mass = s.found_mass;
        }
    }
    __syncthreads();
    return {before + (double)mass * scale, order};
}

// The leader's sums before each bucket.
DEVICE void SumBefore(Shared& s) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, b = threadIdx.x;
    double mass = s.all_mass[b];
    u32 count = s.all_count[b];
#pragma unroll
    for (int step = 1; step < 32; step <<= 1) {
        const double other_mass = __shfl_up_sync(FULL_WARP, mass, step);
        const u32 other_count = __shfl_up_sync(FULL_WARP, count, step);
        if (lane >= step) mass += other_mass, count += other_count;
    }
    if (lane == 31) s.warp_mass[warp] = mass, s.warp_count[warp] = count;
    __syncthreads();
    double mass_of_warps = 0.0;
    for (int v = 0; v < warp; ++v) mass_of_warps += s.warp_mass[v], count += s.warp_count[v];
    s.mass_before[b + 1] = mass_of_warps + mass;
    s.count_before[b + 1] = count;
    if (threadIdx.x == 0) s.mass_before[0] = 0.0, s.count_before[0] = 0;
    __syncthreads();
}

// Sums of all blocks' buckets, then the leader's sums before each.
template <int kBlocks>
DEVICE void MergeBuckets(Shared& s, u32 rank) {
    ClusterSync();
    constexpr int kOwn = kBuckets / kBlocks;
    if (threadIdx.x < kOwn) {
        const int b = rank * kOwn + threadIdx.x;
        u64 mass = 0;
        u32 count = 0;
#pragma unroll
        for (u32 r = 0; r < kBlocks; ++r) {
            mass += RemoteLoad(Remote(&s.mass[b], r));
            count += RemoteLoad(Remote(&s.count[b], r));
        }
        const double scaled = (double)mass * Scale(b);
        RemoteStore(Remote(&s.all_mass[b], 0), (u64)__double_as_longlong(scaled));
        RemoteStore(Remote(&s.all_count[b], 0), count);
    }
    ClusterSync();
    if (rank == 0) SumBefore(s);
}

// The tokens that `top_k` can keep, where they are few: no bucket need be counted then. The k-th of
// the warps' best tokens is no better than the k-th token; the leader gets all tokens of its bucket
// and before, so what it counts of those buckets is whole. None, or more than kFew: all blocks count.
template <int kBlocks>
DEVICE Gathered GatherBest(Shared& s, const Row& row, int top_k) {
    constexpr int kKeys = 32 * kBlocks;
    const Gathered none = {-1, 0};
    if (top_k <= 0 || 4 * top_k > 3 * kKeys || top_k > kFew / 2) return none;
    // Of the keys that no fewer than top_k reach, the largest: a quarter of the keys a lane.
    static_assert(4 * kKeys <= kThreads);
    if (threadIdx.x < 4 * kKeys) {
        const u32 own = s.keys[threadIdx.x / 4];
        u32 count = 0;
#pragma unroll 8
        for (int j = threadIdx.x % 4; j < kKeys / 4; j += 4) {
            const uint4 four = ((const uint4*)s.keys)[j];
            count += (four.x >= own) + (four.y >= own) + (four.z >= own) + (four.w >= own);
        }
        count += __shfl_xor_sync(FULL_WARP, count, 1);
        count += __shfl_xor_sync(FULL_WARP, count, 2);
        u32 reached = count >= top_k ? own : 0;
#pragma unroll
        for (int step = 4; step < 32; step <<= 1)
            reached = max(reached, __shfl_xor_sync(FULL_WARP, reached, step));
        if (threadIdx.x % 32 == 0) atomicMax(&s.least_key, reached);
    }
    __syncthreads();
    if (s.least_key == 0) return none;
    const int last = Weigh(LogitOf((u64)s.least_key << 32), row.most, row.per_logit).bucket;
    if (last == kBuckets) return none;
    const u32 counter = Remote(&s.found_count, 0);
    const u32 list = Remote(s.gathered, 0), weights = Remote(s.weights, 0);
    const float end = last + 1;
    auto look = [&](float logit, int i) {
        const float below = (row.most - logit) * row.per_logit;
        if (!(below * kPerBucket < end)) return;
        const Weight w = Weigh(logit, row.most, row.per_logit);
        if (w.bucket > last) return;
        const u32 place = RemoteAdd(counter, 1u);
        if (place >= kFew) return;
        RemoteStore(list + 8 * place, Order(logit, row.first_id + i));
        RemoteStore(weights + 4 * place, Join(w));
    };
    for (int i = threadIdx.x; i < row.num_tokens / 4; i += kThreads) {
        const float4 four = ((const float4*)row.slice)[i];
        look(four.x, 4 * i), look(four.y, 4 * i + 1);
        look(four.z, 4 * i + 2), look(four.w, 4 * i + 3);
    }
    for (int i = row.num_tokens / 4 * 4 + threadIdx.x; i < row.num_tokens; i += kThreads)
        look(row.slice[i], i);
    ClusterSync();
    return {last, RemoteLoad(counter)};
}

template <int kBlocks>
DEVICE void Sample(const SampleParams& p) {
    extern __shared__ __align__(16) unsigned char dynamic[];
    Shared& s = *(Shared*)dynamic;
    float* slice = (float*)(dynamic + kStateBytes);
    const u32 rank = Rank();
    const int r = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first_id = rank * p.slice;
    const int num_tokens = max(0, min(p.slice, p.vocabulary - first_id));
    LetNextStart();
    if (threadIdx.x == 0) s.found_count = s.least_key = 0;
    for (int i = threadIdx.x; i < kBuckets; i += kThreads) s.mass[i] = s.count[i] = 0;
    ClusterSync();  // all have started, so that their memory may be written
    WaitForInputs();

    const float* logits = p.logits + (size_t)r * p.stride + first_id;
    u64 best = 0;
    const int wide = ((u64)logits & 15) == 0 ? num_tokens / 4 : 0;
    auto keep = [&](float logit, int i) {
        if (!(logit == logit)) logit = -INFINITY;
        slice[i] = logit;
        const u64 order = Order(logit, first_id + i);
        if (order > best) best = order;
    };
    constexpr int kAtOnce = 5;  // loads on their way
    for (int from = threadIdx.x; from < wide; from += kAtOnce * kThreads) {
        float4 four[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j)
            if (from + j * kThreads < wide)
                four[j] = __ldcs((const float4*)logits + from + j * kThreads);
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
            const int i = from + j * kThreads;
            if (i >= wide) break;
            keep(four[j].x, 4 * i), keep(four[j].y, 4 * i + 1);
            keep(four[j].z, 4 * i + 2), keep(four[j].w, 4 * i + 3);
        }
    }
    for (int i = 4 * wide + threadIdx.x; i < num_tokens; i += kThreads) keep(__ldcs(logits + i), i);
#pragma unroll
    for (int step = 16; step; step >>= 1) best = max(best, __shfl_xor_sync(FULL_WARP, best, step));
    if (lane == 0) s.warp_best[warp] = best;
    __syncthreads();
    if (warp == 0) {
        best = s.warp_best[lane];
#pragma unroll
        for (u32 to = 0; to < kBlocks; ++to)
            RemoteStore(Remote(&s.keys[32 * rank + lane], to), (u32)(best >> 32));
#pragma unroll
        for (int step = 16; step; step >>= 1)
            best = max(best, __shfl_xor_sync(FULL_WARP, best, step));
        if (lane < kBlocks) RemoteStore(Remote(&s.best[rank], lane), best);
    }
    ClusterSync();
    best = s.best[0];
#pragma unroll
    for (int i = 1; i < kBlocks; ++i) best = max(best, s.best[i]);

    const float temperature = p.temperature[r], most = LogitOf(best);
    const int top_k = p.top_k[r];
    if (temperature == 0.0f || top_k == 1 || most - most != 0.0f) {
        if (rank == 0 && threadIdx.x == 0) p.ids[r] = (int)(0xffffffffu - (u32)best);
        return;
    }
    const Row row = {slice, num_tokens, first_id, kBlocks, most, fminf(kLog2e / temperature, 1e37f)};
    Gathered have = GatherBest<kBlocks>(s, row, top_k);
    const bool is_few = have.count != 0 && have.count <= kFew;
    if (is_few) {
        if (rank) {  // the leader's count has been read: it may end
            ClusterArrive();
            return;
        }
        __syncthreads();
        if (threadIdx.x < have.count) {
            const u32 weight = s.weights[threadIdx.x];
            atomicAdd(&s.mass[BucketOf(weight)], MassOf(weight));
            atomicAdd(&s.count[BucketOf(weight)], 1u);
        }
        __syncthreads();
        s.all_count[threadIdx.x] = s.count[threadIdx.x];
        s.all_mass[threadIdx.x] = (double)(u64)s.mass[threadIdx.x] * Scale(threadIdx.x);
        SumBefore(s);
    } else {
        have = {-1, 0};
        for (int i = threadIdx.x; i < num_tokens; i += kThreads) {
            const Weight w = Weigh(slice[i], row.most, row.per_logit);
            if (w.bucket == kBuckets) continue;
            atomicAdd(&s.mass[w.bucket], w.mass);
            atomicAdd(&s.count[w.bucket], 1u);
        }
        MergeBuckets<kBlocks>(s, rank);
        if (rank) {
            for (;;) {
                ClusterSync();
                if (s.command == kDone) return;
                Obey(s, row);
                ClusterSync();
            }
        }
    }

    double total = s.mass_before[kBuckets];
    int last = kBuckets - 1;  // the bucket with the last token that is kept
    if (top_k && s.count_before[kBuckets] >= (u32)top_k) {
        total = Find(s, row, have, kCount, (double)top_k).mass;
        last = s.chosen;
    }
    const float top_p = p.top_p[r], min_p = p.min_p[r];
    double kept = total;
    if (top_p < 1.0f) kept = Find(s, row, have, kMassReached, (double)top_p * total).mass;
    if (min_p > 0.0f) {
        // The logit whose probability is min_p of the largest's.
        const float lowest = most + log2f(min_p) / row.per_logit;
        if (Weigh(lowest, row.most, row.per_logit).bucket <= last)
            kept = fmin(kept, Find(s, row, have, kNotBelow, (double)lowest).mass);
    }
    const u64 mixed = Mix(Mix((u64)p.seeds[r]) + (u64)(long long)p.positions[r] * 0x9E3779B97F4A7C15ull);
    const double u = (double)(mixed >> 11) * 0x1p-53;
    const Place place = Find(s, row, have, kMassPassed, u * kept);
    if (threadIdx.x == 0) p.ids[r] = (int)(0xffffffffu - (u32)place.order);
    if (is_few) {
        ClusterArrive();
        ClusterWait();
    } else {
        Ask(s, row, kDone, 0, 0, 0);
    }
}

#define SAMPLE(name, blocks)                                                                  \
    extern "C" __global__ void __launch_bounds__(kThreads, 1) __cluster_dims__(blocks, 1, 1)  \
        name(const __grid_constant__ SampleParams p) {                                        \
        Sample<blocks>(p);                                                                    \
    }

// Eight blocks are faster for a row; of four, the clusters of 16 rows run at once.
SAMPLE(sample_8, 8)
SAMPLE(sample_4, 4)

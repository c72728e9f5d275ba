// SPDX-License-Identifier: Apache-2.0
// The work of paged attention on a tile of tokens. Rows are (query, head of the group) pairs.
//
// A score is 16 chains of fused multiply-adds, chain l over dimensions l, l + 16, ..., added up in
// SumLanes' order; an output is one chain along the tokens. Few rows hold a score's chains in one
// register and read the cache in place (ScoreCached); many rows turn keys once and hold a chain of
// 16 tokens' scores in a register (ScoreTurned). The bits are the same.

// Scores are in multiples of ln 2, so that weights are powers of two.
constexpr float kLog2E = 1.44269504F;
constexpr float kLn2 = 0.693147181F;

template <class T>
inline Vec LoadUpTo(const T* p, int count) {
    return count >= kLanes ? Load(p) : LoadN(p, count);
}

template <int N>
struct Rows {
    static constexpr int kCount = N;
};

// Calls f(Rows<N>, first row) for groups of rows, whose computations share what they load.
template <class F>
inline void InGroups(int num_rows, F f) {
    int row = 0;
    for (; num_rows - row >= kGroupRows; row += kGroupRows) f(Rows<kGroupRows>{}, row);
    if (num_rows - row == 3) f(Rows<3>{}, row);
    if (num_rows - row == 2) f(Rows<2>{}, row);
    if (num_rows - row == 1) f(Rows<1>{}, row);
}

// One step of the chains of R rows for four tokens, 4 apart; `dims` of the 16 dimensions are there.
template <class T, int R>
inline void StepFour(const float* queries, std::int64_t padded, const T* const rows[kLanes], int i,
                     int dims, Vec sum[R][4]) {
    Vec query[R];
    for (int r = 0; r < R; ++r) query[r] = Load(queries + r * padded + i);
    for (int t = 0; t < 4; ++t) {
        const Vec k = LoadUpTo(rows[4 * t] + i, dims);
        for (int r = 0; r < R; ++r) sum[r][t] = Fma(query[r], k, sum[r][t]);
    }
}

// The scores of R rows for 16 tokens, keys read from the cache; four tokens' chains at a time are
// in registers. Not inlined, nor is AddValues: among all that the caller holds, their pointers
// would leave the registers.
template <class T, int R>
[[gnu::noinline]] void ScoreCached(const float* queries, std::int64_t padded,
                                   const T* const rows[kLanes], int head_dim, float* scores) {
    const int full = head_dim / kLanes * kLanes;
    Vec fours[R][4];
    for (int first = 0; first < 4; ++first) {
        Vec sum[R][4];
        for (int r = 0; r < R; ++r) {
            for (int t = 0; t < 4; ++t) sum[r][t] = Zero();
        }
        for (int i = 0; i < full; i += kLanes) {
            StepFour<T, R>(queries, padded, rows + first, i, kLanes, sum);
        }
        if (full < head_dim) {
            StepFour<T, R>(queries, padded, rows + first, full, head_dim - full, sum);
        }
        for (int r = 0; r < R; ++r) fours[r][first] = SumFour(sum[r]);
    }
    for (int r = 0; r < R; ++r) Store(scores + r * kPartitionTokens, SumFours(fours[r]));
}

template <class T>
inline void ScoreTileCached(const AttentionBuffers& b, std::int64_t padded,
                            const T* const rows[kTileTokens], int head_dim, int num_rows,
                            int tile_start) {
    for (int half = 0; half < kTileTokens; half += kLanes) {
        float* scores = b.scores + tile_start + half;
        InGroups(num_rows, [&](auto group, int row) {
            ScoreCached<T, group.kCount>(b.queries + row * padded, padded, rows + half, head_dim,
                                         scores + row * kPartitionTokens);
        });
    }
}

// out[i * kTileTokens + j] = rows[j][i], with zeros for i from head_dim to the padded head.
template <class T>
inline void TurnKeys(const T* const rows[kTileTokens], int head_dim, float* out) {
    for (int half = 0; half < kTileTokens; half += kLanes) {
        for (int i = 0; i < head_dim; i += kLanes) {
            Vec tile[kLanes];
            for (int j = 0; j < kLanes; ++j) tile[j] = LoadUpTo(rows[half + j] + i, head_dim - i);
            Transpose(tile, out + i * kTileTokens + half, kTileTokens);
        }
    }
}

// Chains first, first + 2 * kStep, ... of R rows for 16 tokens, added up as SumLanes does.
template <int R, int kFirst, int kStep>
struct Chains {
    static void Sum(const float* queries, const float* keys, int padded, Vec sum[R]) {
        if constexpr (kStep == kLanes) {
            for (int r = 0; r < R; ++r) sum[r] = Zero();
            for (int i = kFirst; i < padded; i += kLanes) {
                const Vec k = Load(keys + i * kTileTokens);
                for (int r = 0; r < R; ++r)
                    sum[r] = Fma(Set(queries[i * kGroupRows + r]), k, sum[r]);
            }
        } else {
            Vec other[R];
            Chains<R, kFirst, 2 * kStep>::Sum(queries, keys, padded, sum);
            Chains<R, kFirst + kStep, 2 * kStep>::Sum(queries, keys, padded, other);
            for (int r = 0; r < R; ++r) sum[r] = Add(sum[r], other[r]);
        }
    }
};

// Of the tile's first `count` tokens.
template <int R>
inline void ScoreTurned(const float* queries, const float* keys, int padded, int count,
                        float* scores) {
    for (int half = 0; half < count; half += kLanes) {
        Vec sum[R];
        Chains<R, 0, 1>::Sum(queries, keys + half, padded, sum);
        for (int r = 0; r < R; ++r) Store(scores + r * kPartitionTokens + half, sum[r]);
    }
}

// The scales of a partition's keys or values: none but int8's.
template <class T>
struct Scales {
    void Find(const T* const*, int, int, int) {}
    void Apply(float*, int, int, int) const {}
};
template <>
struct Scales<Int8> {
    float at[kPartitionTokens];

    // Of `count` tokens from `first`.
    void Find(const Int8* const* rows, int count, int head_dim, int first) {
        for (int j = 0; j < count; ++j) at[first + j] = ScaleOf(rows[j], head_dim);
    }
    // Multiplies the scores, or the weights, of the tokens [first, end).
    void Apply(float* scores, int num_rows, int first, int end) const {
        for (int row = 0; row < num_rows; ++row, scores += kPartitionTokens) {
            int j = first;
            for (; j + kLanes <= end; j += kLanes) {
                Store(scores + j, Mul(Load(scores + j), Load(at + j)));
            }
            for (; j < end; ++j) scores[j] *= at[j];
        }
    }
};

constexpr int VectorsOf(int count) { return (count + kLanes - 1) / kLanes; }

// `fill` in the lanes of vector v that lie outside [low, high).
inline Vec Outside(Vec x, int v, int low, int high, float fill) {
    static const float kLane[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const Vec lane = Load(kLane);
    const Vec at_least_low = Set(static_cast<float>(low - v * kLanes));
    const Vec below_high = Set(static_cast<float>(high - v * kLanes));
    return IfLess(lane, at_least_low, Set(fill), IfLess(lane, below_high, x, Set(fill)));
}

// softcap * tanh(score / softcap) of the vectors [begin, end); scores are multiples of ln 2.
inline void CapScores(float* scores, int begin, int end, float softcap) {
    const Vec inner = Set(kLn2 / softcap), outer = Set(softcap * kLog2E);
    for (int v = begin; v < end; ++v) {
        Store(scores + v * kLanes, Mul(outer, Tanh(Mul(Load(scores + v * kLanes), inner))));
    }
}

// The largest score of the tokens [low, high) of the partition. In their vectors, the others'
// become -infinity.
inline float FindLargest(float* scores, int low, int high) {
    const int begin = low / kLanes, end = VectorsOf(high);
    const auto cut = [=](int v) {
        float* at = scores + v * kLanes;
        Store(at, Outside(Load(at), v, low, high, -INFINITY));
    };
    if (low % kLanes != 0) cut(begin);
    if (high % kLanes != 0) cut(end - 1);
    Vec most = Set(-INFINITY);
    for (int v = begin; v < end; ++v) most = Max(Load(scores + v * kLanes), most);
    return MaxLane(most);
}

// Scores to weights, in place, for the vectors [begin, end); zero in the rest of [first, last).
// Returns the sum of the weights.
inline float Soften(float* scores, int first, int last, int begin, int end, float largest) {
    const Vec top = Set(largest);
    Vec sum = Zero();
    for (int v = begin; v < end; ++v) {
        const Vec p = Exp2(Sub(Load(scores + v * kLanes), top));
        Store(scores + v * kLanes, p);
        sum = Add(sum, p);
    }
    for (int v = first; v < begin; ++v) Store(scores + v * kLanes, Zero());
    for (int v = end; v < last; ++v) Store(scores + v * kLanes, Zero());
    return SumLanes(sum);
}

// Adds the weighted values of `count` tokens to R rows' sums, for C registers of dimensions from i.
template <class T, int R, int C>
[[gnu::noinline]] void AddValues(const float* weights, const T* const* rows, int i, int count,
                                 std::int64_t padded, float* sums) {
    Vec sum[R][C];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) sum[r][c] = Load(sums + r * padded + i + c * kLanes);
    }
    for (int j = 0; j < count; ++j) {
        Vec v[C];
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) v[c] = Load(rows[j] + i + c * kLanes);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const Vec p = Set(weights[r * kPartitionTokens + j]);
#pragma GCC unroll 4
            for (int c = 0; c < C; ++c) sum[r][c] = Fma(p, v[c], sum[r][c]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) Store(sums + r * padded + i + c * kLanes, sum[r][c]);
    }
}

template <class T, int R>
inline void AddValueRows(const float* weights, const T* const* rows, int count, std::int64_t padded,
                         float* sums) {
    constexpr int kMost = kMaxTileRows / R;  // sums of each row that the registers hold
    constexpr int kColumns = kMost < 4 ? kMost : 4;
    static_assert(kColumns >= 1);
    int i = 0;
    for (; padded - i >= kColumns * kLanes; i += kColumns * kLanes) {
        AddValues<T, R, kColumns>(weights, rows, i, count, padded, sums);
    }
    for (; padded - i >= kLanes; i += kLanes) {
        AddValues<T, R, 1>(weights, rows, i, count, padded, sums);
    }
}

template <class T>
inline void AddValueTile(const AttentionBuffers& b, const T* const* rows, int num_rows,
                         std::int64_t padded, int tile_start, int count) {
    const float* weights = b.scores + tile_start;
    InGroups(num_rows, [&](auto group, int row) {
        AddValueRows<T, group.kCount>(weights + row * kPartitionTokens, rows, count, padded,
                                      b.sums + row * padded);
    });
}

template <class T>
inline void ConvertValues(const T* const rows[kTileTokens], int count, int head_dim,
                          std::int64_t padded, float* out, const float** converted) {
    for (int j = 0; j < count; ++j) {
        converted[j] = out + j * padded;
        for (int i = 0; i < head_dim; i += kLanes) {
            Store(out + j * padded + i, LoadUpTo(rows[j] + i, head_dim - i));
        }
    }
}

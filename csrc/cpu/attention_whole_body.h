// SPDX-License-Identifier: Apache-2.0
// Scores of int8 keys in whole numbers, where DotBiased is fast. A query is rounded to multiples of
// its largest magnitude / kWholeMost, three digits of seven bits each. The sums of a block of
// kWholeDims products are exact, and so the same in whatever order.

constexpr int kWholeDims = 4 * kLanes;
constexpr float kWholeMost = 1 << 20;

template <class T>
constexpr bool kIsWhole = false;
template <>
inline constexpr bool kIsWhole<Int8> = kWholeScores;

// A query in the memory of `padded` floats: the digits of all its dimensions, highest first; its
// unit; and for each block of dimensions the whole numbers that DotBiased wants its sums to begin
// with, of the two higher digits and of the lowest.
struct WholeQuery {
    float* memory;
    int padded;

    std::int8_t* Digits(int digit) const {
        return reinterpret_cast<std::int8_t*>(memory) + digit * padded;
    }
    float& Unit() const { return memory[3 * padded / 4]; }
    std::int32_t Start(int block, int digits) const {
        std::int32_t start;
        std::memcpy(&start, Starts(block) + digits, sizeof(start));
        return start;
    }
    void SetStart(int block, int digits, std::int32_t start) const {
        std::memcpy(Starts(block) + digits, &start, sizeof(start));
    }

  private:
    float* Starts(int block) const { return memory + 3 * padded / 4 + 1 + block / kWholeDims * 2; }
};

// `query` has zeros from its last dimension to `padded`.
inline void RoundQuery(const float* query, int padded, float* memory) {
    const WholeQuery out{memory, padded};
    float most = 0.0F;
    bool is_finite = true;
    for (int i = 0; i < padded; ++i) {
        const float magnitude = std::fabs(query[i]);
        is_finite = is_finite && magnitude < INFINITY;
        most = Most(most, magnitude);
    }
    out.Unit() = is_finite ? most / kWholeMost : NAN;
    const bool is_zero = !is_finite || most < 1e-30F;
    const float inverse = is_zero ? 0.0F : kWholeMost / most;
    for (int block = 0; block < padded; block += kWholeDims) {
        std::int32_t highs = 0, lows = 0;
        for (int i = block; i < Least(block + kWholeDims, padded); ++i) {
            const auto q =
                static_cast<std::int32_t>(is_zero ? 0.0F : std::nearbyintf(query[i] * inverse));
            const std::int32_t high = (q + 64) >> 7, top = (high + 64) >> 7;
            const std::int32_t middle = high - top * 128, low = q - high * 128;
            out.Digits(0)[i] = static_cast<std::int8_t>(top);
            out.Digits(1)[i] = static_cast<std::int8_t>(middle);
            out.Digits(2)[i] = static_cast<std::int8_t>(low);
            highs += high;
            lows += low;
        }
        out.SetStart(block, 0, -128 * highs);
        out.SetStart(block, 1, -128 * lows);
    }
}

// Four dimensions' bytes where TurnKeys has one dimension's floats.
inline void TurnWholeKeys(const Int8* const rows[kTileTokens], int head_dim, float* out) {
    for (int half = 0; half < kTileTokens; half += kLanes) {
        for (int i = 0; i < head_dim; i += kWholeDims) {
            Vec tile[kLanes];
            for (int j = 0; j < kLanes; ++j) {
                const auto* from = reinterpret_cast<const std::uint8_t*>(rows[half + j] + i);
                std::uint8_t padded[kWholeDims];
                if (head_dim - i < kWholeDims) {
                    std::memset(padded, 0, sizeof(padded));
                    std::memcpy(padded, from, static_cast<std::size_t>(head_dim - i));
                    from = padded;
                }
                tile[j] = BiasedLanes(LoadBytes(from));
            }
            Transpose(tile, out + i / 4 * kTileTokens + half, kTileTokens);
        }
    }
}

// The scores of R rows for the tile's first `count` tokens.
template <int R>
[[gnu::noinline]] void ScoreWhole(float* queries, const float* keys, int padded, int count,
                                  float* scores) {
    for (int half = 0; half < count; half += kLanes) {
        Vec total[R];
        for (int r = 0; r < R; ++r) total[r] = Zero();
        for (int block = 0; block < padded; block += kWholeDims) {
            IVec sum[R][3];
            for (int r = 0; r < R; ++r) {
                const WholeQuery query{queries + r * padded, padded};
                sum[r][0] = ISet(0);
                sum[r][1] = BiasedStart(query.Start(block, 0));
                sum[r][2] = BiasedStart(query.Start(block, 1));
            }
            for (int i = block; i < Least(block + kWholeDims, padded); i += 4) {
                const Bytes k = LoadBytes(
                    reinterpret_cast<const std::uint8_t*>(keys + i / 4 * kTileTokens + half));
                for (int r = 0; r < R; ++r) {
                    const WholeQuery query{queries + r * padded, padded};
                    for (int d = 0; d < 3; ++d) {
                        sum[r][d] = DotBiased(sum[r][d], k, query.Digits(d) + i);
                    }
                }
            }
            for (int r = 0; r < R; ++r) {
                const float unit = WholeQuery{queries + r * padded, padded}.Unit();
                const Vec high = ToFloats(Join(sum[r][0], sum[r][1]));
                total[r] = Fma(ToFloats(sum[r][2]), Set(unit), total[r]);
                total[r] = Fma(high, Set(128.0F * unit), total[r]);
            }
        }
        for (int r = 0; r < R; ++r) Store(scores + r * kPartitionTokens + half, total[r]);
    }
}

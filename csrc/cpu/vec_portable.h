// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes as an array, for the compiler to vectorise. Included by for_each_isa.h, inside its
// namespace.

constexpr int kLanes = 16;
constexpr int kMaxTileRows = 4;

struct Vec {
    float lane[kLanes];
};
struct IVec {
    std::int32_t lane[kLanes];
};
// 64 unsigned bytes: four of each of sixteen lanes.
struct Bytes {
    std::uint8_t lane[4 * kLanes];
};

template <class F>
inline Vec Each(F f) {
    Vec out;
    for (int i = 0; i < kLanes; ++i) out.lane[i] = f(i);
    return out;
}

inline Vec Set(float x) {
    return Each([=](int) { return x; });
}
inline Vec Zero() { return Set(0.0F); }
template <class T>
inline Vec Load(const T* p) {
    return Each([=](int i) { return ToFloat(p[i]); });
}
// The first n lanes (n < 16), zero in the others.
template <class T>
inline Vec LoadN(const T* p, int n) {
    return Each([=](int i) { return i < n ? ToFloat(p[i]) : 0.0F; });
}
template <class T>
inline void StoreN(T* p, Vec x, int n) {
    for (int i = 0; i < n; ++i) FromFloat(x.lane[i], p + i);
}
template <class T>
inline void Store(T* p, Vec x) {
    StoreN(p, x, kLanes);
}

inline Vec Add(Vec a, Vec b) {
    return Each([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Vec Sub(Vec a, Vec b) {
    return Each([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Vec Mul(Vec a, Vec b) {
    return Each([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Vec Div(Vec a, Vec b) {
    return Each([&](int i) { return a.lane[i] / b.lane[i]; });
}
inline Vec Fma(Vec a, Vec b, Vec c) {
    return Each([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
}
inline Vec Abs(Vec a) {
    return Each([&](int i) { return std::fabs(a.lane[i]); });
}
// Of an unordered pair, b: a NaN in `a` is passed over.
inline Vec Max(Vec a, Vec b) {
    return Each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec Min(Vec a, Vec b) {
    return Each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
// Lanes where a < b from `yes`, the others from `no`.
inline Vec IfLess(Vec a, Vec b, Vec yes, Vec no) {
    return Each([&](int i) { return a.lane[i] < b.lane[i] ? yes.lane[i] : no.lane[i]; });
}
inline bool AnyLess(Vec a, Vec b) {
    bool any = false;
    for (int i = 0; i < kLanes; ++i) any |= a.lane[i] < b.lane[i];
    return any;
}
inline Vec Round(Vec a) {
    return Each([&](int i) { return std::nearbyintf(a.lane[i]); });
}
// 2^n for a whole n in [-126, 127].
inline Vec Pow2(Vec n) {
    return Each([&](int i) {
        return FloatOfBits(static_cast<std::uint32_t>(static_cast<std::int32_t>(n.lane[i]) + 127)
                           << 23);
    });
}
// The float whose exponent is the lowest eight bits of the lane's.
inline Vec ExponentOf(Vec a) {
    return Each([&](int i) { return FloatOfBits(BitsOfFloat(a.lane[i]) << 23); });
}
// The sum over lanes, as a tree of halves: (i, i + 8), then (i, i + 4), (i, i + 2), (i, i + 1).
inline float SumLanes(Vec a) {
    for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) a.lane[i] += a.lane[i + half];
    }
    return a.lane[0];
}
inline float MaxLane(Vec a) {
    float most = a.lane[0];
    for (int i = 1; i < kLanes; ++i) most = a.lane[i] > most ? a.lane[i] : most;
    return most;
}

inline IVec ISet(std::int32_t x) {
    IVec out;
    for (int i = 0; i < kLanes; ++i) out.lane[i] = x;
    return out;
}
inline Vec ToFloats(IVec a) {
    return Each([&](int i) { return static_cast<float>(a.lane[i]); });
}
// Truncates.
inline IVec ToInts(Vec a) {
    IVec out;
    for (int i = 0; i < kLanes; ++i) out.lane[i] = static_cast<std::int32_t>(a.lane[i]);
    return out;
}
inline void Store(std::int32_t* p, IVec x) { std::memcpy(p, x.lane, sizeof(x.lane)); }

inline Bytes LoadBytes(const std::uint8_t* p) {
    Bytes out;
    std::memcpy(out.lane, p, sizeof(out.lane));
    return out;
}
inline void StoreBytes(std::uint8_t* p, const Bytes& x) { std::memcpy(p, x.lane, sizeof(x.lane)); }
inline Bytes LowNibbles(Bytes x) {
    for (auto& lane : x.lane) lane &= 0x0F;
    return x;
}
inline Bytes HighNibbles(Bytes x) {
    for (auto& lane : x.lane) lane >>= 4;
    return x;
}
// Fields of each byte: two bits from `shift` up, or a set bit as `value`.
inline Bytes TwoBits(Bytes x, int shift) {
    for (auto& lane : x.lane) lane = static_cast<std::uint8_t>(lane >> shift & 3);
    return x;
}
inline Bytes WithBit(Bytes x, const Bytes& flags, int bit, int value) {
    for (int i = 0; i < 4 * kLanes; ++i) {
        if (flags.lane[i] >> bit & 1) x.lane[i] |= static_cast<std::uint8_t>(value);
    }
    return x;
}
// `value` joined to the bytes whose bit is set among the 64 at `mask`.
inline Bytes WithMask(Bytes x, const std::uint8_t* mask, int value) {
    for (int i = 0; i < 4 * kLanes; ++i) {
        if (mask[i / 8] >> i % 8 & 1) x.lane[i] |= static_cast<std::uint8_t>(value);
    }
    return x;
}
// x | high << 4
inline Bytes WithHigh(Bytes x, const Bytes& high) {
    for (int i = 0; i < 4 * kLanes; ++i) x.lane[i] |= static_cast<std::uint8_t>(high.lane[i] << 4);
    return x;
}
// table[x], for x below 16
inline Bytes LookUp(Bytes x, const std::uint8_t table[16]) {
    for (auto& lane : x.lane) lane = table[lane];
    return x;
}
inline Vec FromBytes(const std::uint8_t* p) {
    return Each([=](int i) { return static_cast<float>(p[i]); });
}
inline Vec FromBytes(const std::int8_t* p) {
    return Each([=](int i) { return static_cast<float>(p[i]); });
}
// 2^(e - 128), a subnormal for 0 and 1.
inline Vec FromHalvedExponents(const std::uint8_t* p) {
    return Each(
        [=](int i) { return FloatOfBits(p[i] < 2 ? 0x00200000U << p[i] : (p[i] - 1U) << 23); });
}

// Each lane's four weights times the four activations at `x`, added to the lane. Weights are below
// 128.
inline IVec DotSmall(IVec sum, const Bytes& weights, const std::int8_t* x) {
    for (int i = 0; i < kLanes; ++i) {
        for (int j = 0; j < 4; ++j) sum.lane[i] += weights.lane[4 * i + j] * x[j];
    }
    return sum;
}
constexpr bool kAddsShorts = false;  // as vec_avx2.h does
// The same for bytes that hold weight + 128. `BiasedStart` is where the sum begins, given -128
// times the sum of the activations.
inline IVec DotBiased(IVec sum, const Bytes& weights, const std::int8_t* x) {
    return DotSmall(sum, weights, x);
}
inline IVec BiasedStart(std::int32_t correction) { return ISet(correction); }

// Three products of bytes take longer here than four multiply-adds.
constexpr bool kWholeScores = false;
// Sixteen lanes of four bytes as floats with their bits, each byte with 128 added.
inline Vec BiasedLanes(Bytes x) {
    Vec out;
    for (auto& lane : x.lane) lane ^= 0x80;
    std::memcpy(out.lane, x.lane, sizeof(out.lane));
    return out;
}

// Rounds 16 floats times `inverse` (nearest, ties to even) to 128 * high + low; returns their sum.
inline std::int32_t RoundToInt15(const float* x, float inverse, std::int8_t* high,
                                 std::int8_t* low) {
    std::int32_t sum = 0;
    for (int i = 0; i < kLanes; ++i) {
        const auto q = static_cast<std::int32_t>(std::nearbyintf(x[i] * inverse));
        const std::int32_t h = (q + 64) >> 7;
        high[i] = static_cast<std::int8_t>(h);
        low[i] = static_cast<std::int8_t>(q - h * 128);
        sum += q;
    }
    return sum;
}
// 32 whole numbers of 16 bits: two of each of sixteen lanes.
struct Pairs {
    std::int16_t lane[2 * kLanes];
};
inline Pairs LoadPairs(const std::uint8_t* p) {
    Pairs x;
    std::memcpy(x.lane, p, sizeof(x.lane));
    return x;
}
inline void StorePairs(std::uint8_t* p, const Pairs& x) { std::memcpy(p, x.lane, sizeof(x.lane)); }
// Bytes 0 and 2 of each lane, less `bias`; and bytes 1 and 3.
inline Pairs EvenBytes(const Bytes& x, int bias) {
    Pairs out;
    for (int i = 0; i < 2 * kLanes; ++i) {
        out.lane[i] = static_cast<std::int16_t>(x.lane[2 * i] - bias);
    }
    return out;
}
inline Pairs OddBytes(const Bytes& x, int bias) {
    Pairs out;
    for (int i = 0; i < 2 * kLanes; ++i) {
        out.lane[i] = static_cast<std::int16_t>(x.lane[2 * i + 1] - bias);
    }
    return out;
}
// Each lane's two weights times the two activations at `x`, added to the lane.
inline IVec DotPairs(IVec sum, const Pairs& weights, const std::int16_t* x) {
    for (int i = 0; i < kLanes; ++i) {
        sum.lane[i] += weights.lane[2 * i] * x[0] + weights.lane[2 * i + 1] * x[1];
    }
    return sum;
}
// Additions would cost what the products save.
constexpr bool kMayCross = false;
struct CrossedPairs;
struct CrossedBytes;
inline bool AllLess(Vec a, Vec b) {
    bool all = true;
    for (int i = 0; i < kLanes; ++i) all &= a.lane[i] < b.lane[i];
    return all;
}
// Rounds 32 floats as RoundToInt15 does, to whole numbers kept in the order of EvenBytes, then
// OddBytes, of each four. Also the sum of each half of 16.
inline void RoundToPairs(const float* x, float inverse, std::int16_t* out, std::int32_t sums[2],
                         std::uint32_t*) {
    for (int half = 0; half < 2; ++half, x += kLanes, out += kLanes) {
        sums[half] = 0;
        for (int i = 0; i < kLanes; ++i) {
            const auto q = static_cast<std::int32_t>(std::nearbyintf(x[i] * inverse));
            out[i / 4 * 4 + i % 2 * 2 + i / 2 % 2] = static_cast<std::int16_t>(q);
            sums[half] += q;
        }
    }
}
// Rounds 32 floats likewise to bytes.
inline void RoundToBytes(const float* x, float inverse, int, std::int8_t* out, std::int32_t sums[2],
                         std::int32_t*) {
    for (int half = 0; half < 2; ++half, x += kLanes, out += kLanes) {
        sums[half] = 0;
        for (int i = 0; i < kLanes; ++i) {
            const auto q = static_cast<std::int32_t>(std::nearbyintf(x[i] * inverse));
            out[i] = static_cast<std::int8_t>(q);
            sums[half] += q;
        }
    }
}
// 128 * high + low.
inline IVec Join(IVec high, IVec low) {
    for (int i = 0; i < kLanes; ++i) low.lane[i] += high.lane[i] * 128;
    return low;
}

inline void Prefetch(const void* p) { __builtin_prefetch(p); }
inline void PrefetchFar(const void* p) { __builtin_prefetch(p, 0, 2); }

// 16 x 16: out[i * stride + j] = rows[j][i].
inline void Transpose(const Vec rows[16], float* out, int stride) {
    for (int j = 0; j < 16; ++j) {
        for (int i = 0; i < 16; ++i) out[i * stride + j] = rows[j].lane[i];
    }
}

// SumLanes of sixteen registers, in two parts. See vec_avx512.h.
inline Vec SumFour(const Vec parts[4]) {
    return Each([=](int i) {
        const float* lane = parts[i / 4].lane + i % 4;
        return (lane[0] + lane[8]) + (lane[4] + lane[12]);
    });
}
inline Vec SumFours(const Vec fours[4]) {
    return Each([=](int i) {
        const float* lane = fours[i % 4].lane + i / 4 * 4;
        return (lane[0] + lane[2]) + (lane[1] + lane[3]);
    });
}

// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes in two registers. Included by for_each_isa.h, inside the namespace of the
// instruction set.

constexpr int kLanes = 16;
constexpr int kMaxTileRows = 4;

struct Vec {
    __m256 low, high;
};
struct IVec {
    __m256i low, high;
};
// 64 unsigned bytes: four of each of sixteen lanes.
struct Bytes {
    __m256i low, high;
};

inline Vec Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Vec Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Vec Load(const Half* p) {
    const __m128i* q = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
inline __m256 FromBf16(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Vec Load(const Bf16* p) {
    const __m128i* q = reinterpret_cast<const __m128i*>(p);
    return {FromBf16(_mm_loadu_si128(q)), FromBf16(_mm_loadu_si128(q + 1))};
}
inline Vec Load(const Int8* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline Vec Load(const Fp8* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m256i twice_signed = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
    const __m256i halves = _mm256_and_si256(twice_signed, _mm256_set1_epi16(-0x4001));
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
// The first n lanes (n < 16), zero in the others.
template <class T>
inline Vec LoadN(const T* p, int n) {
    T lanes[kLanes] = {};
    std::memcpy(lanes, p, static_cast<std::size_t>(n) * sizeof(T));
    return Load(lanes);
}

inline __m128i RoundToBf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i high =
        _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), _mm256_set1_epi32(0x7FC0), is_nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);
    return _mm256_castsi256_si128(packed);
}
inline void Store(float* p, Vec x) {
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
}
inline void Store(Half* p, Vec x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    __m128i* q = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(q, _mm256_cvtps_ph(x.low, kNearest));
    _mm_storeu_si128(q + 1, _mm256_cvtps_ph(x.high, kNearest));
}
inline void Store(Bf16* p, Vec x) {
    __m128i* q = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(q, RoundToBf16(x.low));
    _mm_storeu_si128(q + 1, RoundToBf16(x.high));
}
template <class T>
inline void StoreN(T* p, Vec x, int n) {
    T lanes[kLanes];
    Store(lanes, x);
    std::memcpy(p, lanes, static_cast<std::size_t>(n) * sizeof(T));
}

inline Vec Add(Vec a, Vec b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Vec Sub(Vec a, Vec b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Vec Mul(Vec a, Vec b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Vec Div(Vec a, Vec b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline Vec Fma(Vec a, Vec b, Vec c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Vec Abs(Vec a) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
// Of an unordered pair, b: a NaN in `a` is passed over.
inline Vec Max(Vec a, Vec b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline Vec Min(Vec a, Vec b) {
    return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
// Lanes where a < b from `yes`, the others from `no`.
inline Vec IfLess(Vec a, Vec b, Vec yes, Vec no) {
    return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
            _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
inline bool AnyLess(Vec a, Vec b) {
    const __m256 less = _mm256_or_ps(_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ),
                                     _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ));
    return _mm256_movemask_ps(less) != 0;
}
inline Vec Round(Vec a) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.low, kNearest), _mm256_round_ps(a.high, kNearest)};
}
inline __m256 Pow2(__m256 n) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
// 2^n for a whole n in [-126, 127].
inline Vec Pow2(Vec n) { return {Pow2(n.low), Pow2(n.high)}; }
// The float whose exponent is the lowest eight bits of the lane's.
inline __m256 ExponentOf(__m256 a) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a), 23));
}
inline Vec ExponentOf(Vec a) { return {ExponentOf(a.low), ExponentOf(a.high)}; }
// The sum over lanes, as a tree of halves: (i, i + 8), then (i, i + 4), (i, i + 2), (i, i + 1).
inline float SumLanes(Vec a) {
    const __m256 eight = _mm256_add_ps(a.low, a.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float MaxLane(Vec a) {
    const __m256 eight = _mm256_max_ps(a.low, a.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline IVec ISet(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Vec ToFloats(IVec a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
// Truncates.
inline IVec ToInts(Vec a) { return {_mm256_cvttps_epi32(a.low), _mm256_cvttps_epi32(a.high)}; }
inline void Store(std::int32_t* p, IVec x) {
    __m256i* q = reinterpret_cast<__m256i*>(p);
    _mm256_storeu_si256(q, x.low);
    _mm256_storeu_si256(q + 1, x.high);
}

inline Bytes LoadBytes(const std::uint8_t* p) {
    const __m256i* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline void StoreBytes(std::uint8_t* p, Bytes x) {
    __m256i* q = reinterpret_cast<__m256i*>(p);
    _mm256_storeu_si256(q, x.low);
    _mm256_storeu_si256(q + 1, x.high);
}
inline Bytes LowNibbles(Bytes x) {
    const __m256i mask = _mm256_set1_epi8(0x0F);
    return {_mm256_and_si256(x.low, mask), _mm256_and_si256(x.high, mask)};
}
inline Bytes HighNibbles(Bytes x) {
    return LowNibbles({_mm256_srli_epi16(x.low, 4), _mm256_srli_epi16(x.high, 4)});
}
// Fields of each byte: two bits from `shift` up, or a set bit as `value`.
inline Bytes TwoBits(Bytes x, int shift) {
    const __m128i count = _mm_cvtsi32_si128(shift);
    const __m256i mask = _mm256_set1_epi8(3);
    return {_mm256_and_si256(_mm256_srl_epi16(x.low, count), mask),
            _mm256_and_si256(_mm256_srl_epi16(x.high, count), mask)};
}
inline __m256i WithBit(__m256i x, __m256i flags, __m256i bit, __m256i value) {
    const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(flags, bit), bit);
    return _mm256_or_si256(x, _mm256_and_si256(is_set, value));
}
inline Bytes WithBit(Bytes x, Bytes flags, int bit, int value) {
    const __m256i bits = _mm256_set1_epi8(static_cast<char>(1 << bit));
    const __m256i values = _mm256_set1_epi8(static_cast<char>(value));
    return {WithBit(x.low, flags.low, bits, values), WithBit(x.high, flags.high, bits, values)};
}
// 32 bits to 32 bytes: each byte keeps its own bit of the byte that it belongs to.
inline __m256i WithMask(__m256i x, const std::uint8_t* mask, __m256i value) {
    std::int32_t four;
    std::memcpy(&four, mask, sizeof(four));
    const __m256i owner = _mm256_setr_epi64x(0x0000000000000000, 0x0101010101010101,
                                             0x0202020202020202, 0x0303030303030303);
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(four), owner);
    return WithBit(x, spread, _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201)),
                   value);
}
// `value` joined to the bytes whose bit is set among the 64 at `mask`.
inline Bytes WithMask(Bytes x, const std::uint8_t* mask, int value) {
    const __m256i values = _mm256_set1_epi8(static_cast<char>(value));
    return {WithMask(x.low, mask, values), WithMask(x.high, mask + 4, values)};
}
// x | high << 4
inline Bytes WithHigh(Bytes x, Bytes high) {
    return {_mm256_or_si256(x.low, _mm256_slli_epi16(high.low, 4)),
            _mm256_or_si256(x.high, _mm256_slli_epi16(high.high, 4))};
}
// table[x], for x below 16
inline Bytes LookUp(Bytes x, const std::uint8_t table[16]) {
    const __m256i values =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    return {_mm256_shuffle_epi8(values, x.low), _mm256_shuffle_epi8(values, x.high)};
}
inline Vec FromBytes(const std::uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline Vec FromBytes(const std::int8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
// 2^(e - 128), a subnormal for 0 and 1.
inline Vec FromHalvedExponents(const std::uint8_t* p) {
    float lanes[kLanes];
    for (int i = 0; i < kLanes; ++i) {
        lanes[i] = FloatOfBits(p[i] < 2 ? 0x00200000U << p[i] : (p[i] - 1U) << 23);
    }
    return Load(lanes);
}

// Sums that are made where they stand: left to itself, g++ makes all products of a loop before it
// adds any, and keeps them on the stack.
inline __m256i AddNow(__m256i sum, __m256i product) {
    sum = _mm256_add_epi32(sum, product);
    asm("" : "+x"(sum));
    return sum;
}
inline __m256i AddNow16(__m256i sum, __m256i product) {
    sum = _mm256_add_epi16(sum, product);
    asm("" : "+x"(sum));
    return sum;
}

inline __m256i DotSmall(__m256i sum, __m256i weights, __m256i x) {
    const __m256i pairs = _mm256_maddubs_epi16(weights, x);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline __m256i Broadcast4(const std::int8_t* x) {
    std::int32_t four;
    std::memcpy(&four, x, sizeof(four));
    return _mm256_set1_epi32(four);
}
// Each lane's four weights times the four activations at `x`, added to the lane. Weights are below
// 128.
inline IVec DotSmall(IVec sum, Bytes weights, const std::int8_t* x) {
    const __m256i four = Broadcast4(x);
    return {DotSmall(sum.low, weights.low, four), DotSmall(sum.high, weights.high, four)};
}
// DotSmall of N registers of weights and 4 N activations of at most 127, whose pairs of products
// add up within 16 bits.
constexpr bool kAddsShorts = true;
template <int N>
inline IVec DotShorts(IVec sum, const Bytes* weights, const std::int8_t* x) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i low = _mm256_setzero_si256(), high = low;
    for (int i = 0; i < N; ++i) {
        const __m256i four = Broadcast4(x + 4 * i);
        low = AddNow16(low, _mm256_maddubs_epi16(weights[i].low, four));
        high = AddNow16(high, _mm256_maddubs_epi16(weights[i].high, four));
    }
    return {_mm256_add_epi32(sum.low, _mm256_madd_epi16(low, ones)),
            _mm256_add_epi32(sum.high, _mm256_madd_epi16(high, ones))};
}
inline __m256i DotBiased(__m256i sum, __m256i weights, __m256i x) {
    // |w| and x with w's sign: pairs of products fit 16 bits then.
    const __m256i w = _mm256_xor_si256(weights, _mm256_set1_epi8(-128));
    return DotSmall(sum, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}
// The same for bytes that hold weight + 128. `BiasedStart` is where the sum begins, given -128
// times the sum of the activations.
inline IVec DotBiased(IVec sum, Bytes weights, const std::int8_t* x) {
    const __m256i four = Broadcast4(x);
    return {DotBiased(sum.low, weights.low, four), DotBiased(sum.high, weights.high, four)};
}
inline IVec BiasedStart(std::int32_t) { return ISet(0); }

// Three products of bytes take longer here than four multiply-adds.
constexpr bool kWholeScores = false;
// Sixteen lanes of four bytes as floats with their bits, each byte with 128 added.
inline Vec BiasedLanes(Bytes x) {
    const __m256i bias = _mm256_set1_epi8(-128);
    return {_mm256_castsi256_ps(_mm256_xor_si256(x.low, bias)),
            _mm256_castsi256_ps(_mm256_xor_si256(x.high, bias))};
}

inline IVec RoundToInts(const float* x, float inverse) {
    const Vec scaled = Mul(Load(x), Set(inverse));
    return {_mm256_cvtps_epi32(scaled.low), _mm256_cvtps_epi32(scaled.high)};
}
inline std::int32_t SumOf(IVec a) {
    const __m256i eight = _mm256_add_epi32(a.low, a.high);
    const __m128i four =
        _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
}
inline __m256i ToShorts(IVec a) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xD8);
}
inline void StoreAsBytes(std::int8_t* p, IVec a) {
    const __m256i shorts = ToShorts(a);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(shorts), _mm256_extracti128_si256(shorts, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

// Rounds 16 floats times `inverse` (nearest, ties to even) to 128 * high + low; returns their sum.
inline std::int32_t RoundToInt15(const float* x, float inverse, std::int8_t* high,
                                 std::int8_t* low) {
    const IVec q = RoundToInts(x, inverse);
    const __m256i half = _mm256_set1_epi32(64);
    const IVec h{_mm256_srai_epi32(_mm256_add_epi32(q.low, half), 7),
                 _mm256_srai_epi32(_mm256_add_epi32(q.high, half), 7)};
    StoreAsBytes(high, h);
    StoreAsBytes(low, {_mm256_sub_epi32(q.low, _mm256_slli_epi32(h.low, 7)),
                       _mm256_sub_epi32(q.high, _mm256_slli_epi32(h.high, 7))});
    return SumOf(q);
}
// 32 whole numbers of 16 bits: two of each of sixteen lanes.
struct Pairs {
    __m256i low, high;
};
inline Pairs LoadPairs(const std::uint8_t* p) {
    const __m256i* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_load_si256(q), _mm256_load_si256(q + 1)};
}
inline void StorePairs(std::uint8_t* p, Pairs x) {
    __m256i* q = reinterpret_cast<__m256i*>(p);
    _mm256_store_si256(q, x.low);
    _mm256_store_si256(q + 1, x.high);
}
// Bytes 0 and 2 of each lane, less `bias`; and bytes 1 and 3.
inline Pairs EvenBytes(Bytes x, int bias) {
    const __m256i mask = _mm256_set1_epi16(0xFF);
    const __m256i less = _mm256_set1_epi16(static_cast<std::int16_t>(bias));
    return {_mm256_sub_epi16(_mm256_and_si256(x.low, mask), less),
            _mm256_sub_epi16(_mm256_and_si256(x.high, mask), less)};
}
inline Pairs OddBytes(Bytes x, int bias) {
    const __m256i less = _mm256_set1_epi16(static_cast<std::int16_t>(bias));
    return {_mm256_sub_epi16(_mm256_srli_epi16(x.low, 8), less),
            _mm256_sub_epi16(_mm256_srli_epi16(x.high, 8), less)};
}
// Each lane's two weights times the two activations at `x`, added to the lane.
inline IVec DotPairs(IVec sum, Pairs weights, const std::int16_t* x) {
    std::int32_t two;
    std::memcpy(&two, x, sizeof(two));
    const __m256i both = _mm256_set1_epi32(two);
    return {AddNow(sum.low, _mm256_madd_epi16(weights.low, both)),
            AddNow(sum.high, _mm256_madd_epi16(weights.high, both))};
}
// Additions would cost what the products save.
constexpr bool kMayCross = false;
struct CrossedPairs;
struct CrossedBytes;
inline bool AllLess(Vec a, Vec b) {
    const __m256 less = _mm256_and_ps(_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ),
                                      _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ));
    return _mm256_movemask_ps(less) == 0xFF;
}
// Rounds 32 floats as RoundToInt15 does, to whole numbers kept in the order of EvenBytes, then
// OddBytes, of each four. Also the sum of each half of 16.
inline void RoundToPairs(const float* x, float inverse, std::int16_t* out, std::int32_t sums[2],
                         std::uint32_t*) {
    for (int half = 0; half < 2; ++half) {
        const IVec q = RoundToInts(x + half * kLanes, inverse);
        const IVec turned{_mm256_shuffle_epi32(q.low, 0xD8), _mm256_shuffle_epi32(q.high, 0xD8)};
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + half * kLanes), ToShorts(turned));
        sums[half] = SumOf(q);
    }
}
// Rounds 32 floats likewise to bytes.
inline void RoundToBytes(const float* x, float inverse, int, std::int8_t* out, std::int32_t sums[2],
                         std::int32_t*) {
    for (int half = 0; half < 2; ++half) {
        const IVec q = RoundToInts(x + half * kLanes, inverse);
        StoreAsBytes(out + half * kLanes, q);
        sums[half] = SumOf(q);
    }
}
// 128 * high + low.
inline IVec Join(IVec high, IVec low) {
    return {_mm256_add_epi32(_mm256_slli_epi32(high.low, 7), low.low),
            _mm256_add_epi32(_mm256_slli_epi32(high.high, 7), low.high)};
}

inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
// To the second cache only: the first has too few misses in flight to hide the memory's latency.
// Assembly, since g++ takes a function of prefetches for one without effects and drops its calls.
inline void PrefetchFar(const void* p) {
    asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(p)));
}

// 16 x 16: out[i * stride + j] = rows[j][i].
inline void Transpose(const Vec rows[16], float* out, int stride) {
    float lanes[16];
    for (int j = 0; j < 16; ++j) {
        Store(lanes, rows[j]);
        for (int i = 0; i < 16; ++i) out[i * stride + j] = lanes[i];
    }
}

// SumLanes of sixteen registers, in two parts. See vec_avx512.h.
inline Vec SumFour(const Vec parts[4]) {
    __m256 pairs[2];
    for (int i = 0; i < 2; ++i) {
        const __m256 a = _mm256_add_ps(parts[2 * i].low, parts[2 * i].high);
        const __m256 b = _mm256_add_ps(parts[2 * i + 1].low, parts[2 * i + 1].high);
        pairs[i] =
            _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    }
    return {pairs[0], pairs[1]};
}
inline __m256 SumHalves(__m256 a, __m256 b, __m256 c, __m256 d) {
    const __m256d ad = _mm256_castps_pd(a), bd = _mm256_castps_pd(b);
    const __m256d cd = _mm256_castps_pd(c), dd = _mm256_castps_pd(d);
    const __m256 ab = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(ad, bd)),
                                    _mm256_castpd_ps(_mm256_unpackhi_pd(ad, bd)));
    const __m256 both = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(cd, dd)),
                                      _mm256_castpd_ps(_mm256_unpackhi_pd(cd, dd)));
    return _mm256_add_ps(_mm256_shuffle_ps(ab, both, 0x88), _mm256_shuffle_ps(ab, both, 0xDD));
}
inline Vec SumFours(const Vec fours[4]) {
    return {SumHalves(fours[0].low, fours[1].low, fours[2].low, fours[3].low),
            SumHalves(fours[0].high, fours[1].high, fours[2].high, fours[3].high)};
}

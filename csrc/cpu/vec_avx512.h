// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes in one register. Included by for_each_isa.h, inside the namespace of the
// instruction set.

constexpr int kLanes = 16;
// Rows of a matrix product that share one pass over a weight tile: what the registers hold.
constexpr int kMaxTileRows = 16;

struct Vec {
    __m512 v;
};
struct IVec {
    __m512i v;
};
// 64 unsigned bytes: four of each of sixteen lanes.
struct Bytes {
    __m512i v;
};

inline __mmask16 FirstLanes(int n) { return static_cast<__mmask16>((1U << n) - 1U); }

inline Vec Zero() { return {_mm512_setzero_ps()}; }
inline Vec Set(float x) { return {_mm512_set1_ps(x)}; }
inline Vec Load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Vec Load(const Half* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Vec Load(const Bf16* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
inline Vec Load(const Int8* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
inline Vec LoadN(const Int8* p, int n) {
    const __m128i bytes = _mm_maskz_loadu_epi8(FirstLanes(n), p);
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
inline Vec Load(const Fp8* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m256i twice_signed = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
    return {_mm512_cvtph_ps(_mm256_and_si256(twice_signed, _mm256_set1_epi16(-0x4001)))};
}
// The first n lanes (n < 16), zero in the others.
inline Vec LoadN(const float* p, int n) { return {_mm512_maskz_loadu_ps(FirstLanes(n), p)}; }
inline Vec LoadN(const Half* p, int n) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstLanes(n), p))};
}
inline Vec LoadN(const Bf16* p, int n) {
    const __m256i bits = _mm256_maskz_loadu_epi16(FirstLanes(n), p);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}

inline __m256i RoundToBf16(Vec x) {
    const __m512i bits = _mm512_castps_si512(x.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
    const __m512i high = _mm512_srli_epi32(sum, 16);
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(high, is_nan, _mm512_set1_epi32(0x7FC0)));
}
inline __m256i RoundToHalf(Vec x) {
    return _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline void Store(float* p, Vec x) { _mm512_storeu_ps(p, x.v); }
inline void Store(Half* p, Vec x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), RoundToHalf(x));
}
inline void Store(Bf16* p, Vec x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), RoundToBf16(x));
}
inline void StoreN(float* p, Vec x, int n) { _mm512_mask_storeu_ps(p, FirstLanes(n), x.v); }
inline void StoreN(Half* p, Vec x, int n) {
    _mm256_mask_storeu_epi16(p, FirstLanes(n), RoundToHalf(x));
}
inline void StoreN(Bf16* p, Vec x, int n) {
    _mm256_mask_storeu_epi16(p, FirstLanes(n), RoundToBf16(x));
}

inline Vec Add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec Sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec Mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec Div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec Fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec Abs(Vec a) { return {_mm512_abs_ps(a.v)}; }
// Of an unordered pair, b: a NaN in `a` is passed over.
inline Vec Max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec Min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
// Lanes where a < b from `yes`, the others from `no`.
inline Vec IfLess(Vec a, Vec b, Vec yes, Vec no) {
    return {_mm512_mask_mov_ps(no.v, _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), yes.v)};
}
inline bool AnyLess(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ) != 0; }
inline Vec Round(Vec a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// 2^n for a whole n in [-126, 127].
inline Vec Pow2(Vec n) {
    const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}
// The float whose exponent is the lowest eight bits of the lane's.
inline Vec ExponentOf(Vec a) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a.v), 23))};
}
// The sum over lanes, as a tree of halves: (i, i + 8), then (i, i + 4), (i, i + 2), (i, i + 1).
inline float SumLanes(Vec a) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float MaxLane(Vec a) { return _mm512_reduce_max_ps(a.v); }

inline IVec ISet(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
inline Vec ToFloats(IVec a) { return {_mm512_cvtepi32_ps(a.v)}; }
// Truncates.
inline IVec ToInts(Vec a) { return {_mm512_cvttps_epi32(a.v)}; }
inline void Store(std::int32_t* p, IVec x) { _mm512_storeu_si512(p, x.v); }

inline Bytes LoadBytes(const std::uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline void StoreBytes(std::uint8_t* p, Bytes x) { _mm512_storeu_si512(p, x.v); }
inline Bytes LowNibbles(Bytes x) { return {_mm512_and_si512(x.v, _mm512_set1_epi8(0x0F))}; }
inline Bytes HighNibbles(Bytes x) {
    return {_mm512_and_si512(_mm512_srli_epi16(x.v, 4), _mm512_set1_epi8(0x0F))};
}
// Fields of each byte: two bits from `shift` up, or a set bit as `value`.
inline Bytes TwoBits(Bytes x, int shift) {
    const __m512i moved = _mm512_srl_epi16(x.v, _mm_cvtsi32_si128(shift));
    return {_mm512_and_si512(moved, _mm512_set1_epi8(3))};
}
inline Bytes WithBit(Bytes x, Bytes flags, int bit, int value) {
    const __mmask64 is_set =
        _mm512_test_epi8_mask(flags.v, _mm512_set1_epi8(static_cast<char>(1 << bit)));
    const __m512i both = _mm512_or_si512(x.v, _mm512_set1_epi8(static_cast<char>(value)));
    return {_mm512_mask_mov_epi8(x.v, is_set, both)};
}
// `value` joined to the bytes whose bit is set among the 64 at `mask`.
inline Bytes WithMask(Bytes x, const std::uint8_t* mask, int value) {
    std::uint64_t bits;
    std::memcpy(&bits, mask, sizeof(bits));
    const __m512i both = _mm512_or_si512(x.v, _mm512_set1_epi8(static_cast<char>(value)));
    return {_mm512_mask_mov_epi8(x.v, bits, both)};
}
// x | high << 4
inline Bytes WithHigh(Bytes x, Bytes high) {
    return {_mm512_or_si512(x.v, _mm512_slli_epi16(high.v, 4))};
}
// table[x], for x below 16
inline Bytes LookUp(Bytes x, const std::uint8_t table[16]) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), x.v)};
}
inline Vec FromBytes(const std::uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))};
}
inline Vec FromBytes(const std::int8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
// 2^(e - 128), a subnormal for 0 and 1.
inline Vec FromHalvedExponents(const std::uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m512i e = _mm512_cvtepu8_epi32(bytes);
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __m512i tiny = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const __mmask16 is_tiny = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
    return {_mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_tiny, tiny))};
}

// Each lane's four weights times the four activations at `x`, added to the lane. Weights are below
// 128.
inline IVec DotSmall(IVec sum, Bytes weights, const std::int8_t* x) {
    std::int32_t four;
    std::memcpy(&four, x, sizeof(four));
    return {_mm512_dpbusd_epi32(sum.v, weights.v, _mm512_set1_epi32(four))};
}
constexpr bool kAddsShorts = false;  // as vec_avx2.h does
// The same for bytes that hold weight + 128. `BiasedStart` is where the sum begins, given -128
// times the sum of the activations.
inline IVec DotBiased(IVec sum, Bytes weights, const std::int8_t* x) {
    return DotSmall(sum, weights, x);
}
inline IVec BiasedStart(std::int32_t correction) { return ISet(correction); }

// Whether sums of DotBiased in place of multiply-adds are worth what the rounding costs.
constexpr bool kWholeScores = true;
// Sixteen lanes of four bytes as floats with their bits, each byte with 128 added.
inline Vec BiasedLanes(Bytes x) {
    return {_mm512_castsi512_ps(_mm512_xor_si512(x.v, _mm512_set1_epi8(-128)))};
}

// Rounds 16 floats times `inverse` (nearest, ties to even) to 128 * high + low; returns their sum.
inline std::int32_t RoundToInt15(const float* x, float inverse, std::int8_t* high,
                                 std::int8_t* low) {
    const __m512i q =
        _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(inverse)));
    const __m512i h = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(64)), 7);
    const __m512i l = _mm512_sub_epi32(q, _mm512_slli_epi32(h, 7));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm512_cvtepi32_epi8(h));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm512_cvtepi32_epi8(l));
    return _mm512_reduce_add_epi32(q);
}
// 32 whole numbers of 16 bits: two of each of sixteen lanes.
struct Pairs {
    __m512i v;
};
inline Pairs LoadPairs(const std::uint8_t* p) { return {_mm512_load_si512(p)}; }
inline void StorePairs(std::uint8_t* p, Pairs x) { _mm512_store_si512(p, x.v); }
// Bytes 0 and 2 of each lane, less `bias`; and bytes 1 and 3.
inline Pairs EvenBytes(Bytes x, int bias) {
    const __m512i even = _mm512_and_si512(x.v, _mm512_set1_epi16(0xFF));
    return {_mm512_sub_epi16(even, _mm512_set1_epi16(static_cast<std::int16_t>(bias)))};
}
inline Pairs OddBytes(Bytes x, int bias) {
    const __m512i odd = _mm512_srli_epi16(x.v, 8);
    return {_mm512_sub_epi16(odd, _mm512_set1_epi16(static_cast<std::int16_t>(bias)))};
}
// The two activations at `x` in each lane: an access of its own, for a broadcast that a load does.
inline __m512i TwoOfEach(const std::int16_t* x) {
    std::int32_t two;
    std::memcpy(&two, x, sizeof(two));
    return _mm512_set1_epi32(two);
}
// Each lane's two weights times the two activations at `x`, added to the lane.
inline IVec DotPairs(IVec sum, Pairs weights, const std::int16_t* x) {
    return {_mm512_dpwssd_epi32(sum.v, weights.v, TwoOfEach(x))};
}
// Sums of w0 x0 + w1 x1 as (x0 + w1)(x1 + w0) - x0 x1 - w0 w1: half the products, for two additions
// each, which run beside them. Lanes wrap, and end as the same whole numbers. One four of four is
// multiplied straight: additions of all would leave the multipliers idle.
constexpr bool kMayCross = true;
struct CrossedPairs {
    static constexpr bool Crosses(int four) { return four % 4 != 1; }
    // Adds w0 w1.
    static IVec Cross(IVec cross, Pairs even, Pairs odd) {
        return {_mm512_dpwssd_epi32(cross.v, even.v, odd.v)};
    }
    // Given -x0 x1, over all that the sum will have.
    static IVec Start(const std::int32_t* cross, std::int32_t start) {
        return {_mm512_sub_epi32(_mm512_set1_epi32(start), _mm512_loadu_si512(cross))};
    }
    static IVec Finish(IVec sum, IVec cross) { return {_mm512_sub_epi32(sum.v, cross.v)}; }
    static IVec Dot(IVec sum, Pairs even, Pairs odd, const std::int16_t* x) {
        return {_mm512_dpwssd_epi32(sum.v, _mm512_add_epi16(odd.v, TwoOfEach(x)),
                                    _mm512_add_epi16(even.v, TwoOfEach(x + 2)))};
    }
};
// The same for bytes, of eight activations at a time: w0 and w1 are four weights each, about
// zero, and w1 and x0 + w1 have 128 added, so that one factor has no sign. Both must fit a byte.
struct CrossedBytes {
    static constexpr bool Crosses(int eight) { return eight % 4 != 1; }
    static Bytes First(Bytes w, int center) { return Less(w, center); }
    static Bytes Second(Bytes w, int center) { return Less(w, center - 128); }
    // Adds w0 w1.
    static IVec Cross(IVec cross, Bytes first, Bytes second) {
        return {_mm512_dpbusd_epi32(cross.v, second.v, first.v)};
    }
    static IVec Start(const std::int32_t* cross, std::int32_t start) {
        return CrossedPairs::Start(cross, start);
    }
    static IVec Dot(IVec sum, Bytes first, Bytes second, const std::int8_t* x) {
        return {_mm512_dpbusd_epi32(sum.v, _mm512_add_epi8(second.v, FourOfEach(x)),
                                    _mm512_add_epi8(first.v, FourOfEach(x + 4)))};
    }

  private:
    static Bytes Less(Bytes w, int by) {
        return {_mm512_sub_epi8(w.v, _mm512_set1_epi8(static_cast<char>(by)))};
    }
    static __m512i FourOfEach(const std::int8_t* x) {
        std::int32_t four;
        std::memcpy(&four, x, sizeof(four));
        return _mm512_set1_epi32(four);
    }
};
inline bool AllLess(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ) == 0xFFFF; }
// Rounds 32 floats as RoundToInt15 does, to whole numbers kept in the order of EvenBytes, then
// OddBytes, of each four. Also, for each half of 16, their sum, and where CrossedPairs starts,
// which may wrap.
inline void RoundToPairs(const float* x, float inverse, std::int16_t* out, std::int32_t sums[2],
                         std::uint32_t starts[2]) {
    const __m512 by = _mm512_set1_ps(inverse);
    const __m512i first = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), by));
    const __m512i second = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + kLanes), by));
    // Fours of the two, in turns, each in its order; then those of the first before the others.
    const __m512i turned = _mm512_packs_epi32(_mm512_shuffle_epi32(first, _MM_PERM_DBCA),
                                              _mm512_shuffle_epi32(second, _MM_PERM_DBCA));
    const __m512i order = _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0);
    const __m512i pairs = _mm512_permutexvar_epi64(order, turned);
    _mm512_storeu_si512(out, pairs);
    // Even lanes: x0 x1 of each four that is crossed; odd lanes: the sum of all four.
    const __m512i swapped = _mm512_shuffle_epi32(pairs, _MM_PERM_CDAB);
    const __m512i ones = _mm512_maskz_set1_epi16(0xCCCCCCCC, 1);
    __m512i both = _mm512_dpwssd_epi32(_mm512_setzero_si512(), swapped, ones);
    both = _mm512_dpwssd_epi32(both, pairs, _mm512_mask_mov_epi32(ones, 0x5151, swapped));
    both = _mm512_add_epi32(both, _mm512_shuffle_i64x2(both, both, 0xB1));
    both = _mm512_add_epi32(both, _mm512_shuffle_epi32(both, _MM_PERM_BADC));
    for (int half = 0; half < 2; ++half) {
        const __m128i lanes =
            half == 0 ? _mm512_castsi512_si128(both) : _mm512_extracti32x4_epi32(both, 2);
        starts[half] = 0U - static_cast<std::uint32_t>(_mm_cvtsi128_si32(lanes));
        sums[half] = _mm_extract_epi32(lanes, 1);
    }
}
// Rounds 32 floats likewise to bytes. Also, for each half of 16, their sum, and what CrossedBytes
// has besides: x1 (x0 + 128), and `center` times x where eight are not crossed.
inline void RoundToBytes(const float* x, float inverse, int center, std::int8_t* out,
                         std::int32_t sums[2], std::int32_t products[2]) {
    const __m512 by = _mm512_set1_ps(inverse);
    const __m512i first = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), by));
    const __m512i second = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + kLanes), by));
    const __m256i q = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(first)),
                                              _mm512_cvtepi32_epi8(second), 1);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), q);
    const __m256i zero = _mm256_setzero_si256();
    const __m256i fours = _mm256_dpbusd_epi32(zero, _mm256_set1_epi8(1), q);
    // x0 + 128 of each eight that is crossed, where x1 is; `center` where eight are not.
    const __m256i biased = _mm256_xor_si256(q, _mm256_set1_epi8(-128));
    const __m256i by_straight = _mm256_maskz_set1_epi8(0xFF00, static_cast<char>(center));
    const __m256i crossed = _mm256_mask_shuffle_epi32(by_straight, 0xA2, biased, _MM_PERM_CCAA);
    const __m256i both = _mm256_hadd_epi32(fours, _mm256_dpbusd_epi32(zero, crossed, q));
    const __m256i halves = _mm256_hadd_epi32(both, both);
    for (int half = 0; half < 2; ++half) {
        const __m128i lanes =
            half == 0 ? _mm256_castsi256_si128(halves) : _mm256_extracti128_si256(halves, 1);
        sums[half] = _mm_cvtsi128_si32(lanes);
        products[half] = _mm_extract_epi32(lanes, 1);
    }
}
// 128 * high + low.
inline IVec Join(IVec high, IVec low) {
    return {_mm512_add_epi32(_mm512_slli_epi32(high.v, 7), low.v)};
}

inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
// To the second cache only: the first has too few misses in flight to hide the memory's latency.
// Assembly, since g++ takes a function of prefetches for one without effects and drops its calls.
inline void PrefetchFar(const void* p) {
    asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(p)));
}

// 16 x 16: out[i * stride + j] = rows[j][i].
inline void Transpose(const Vec rows[16], float* out, int stride) {
    __m512 a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_ps(rows[i].v, rows[i + 1].v);
        a[i + 1] = _mm512_unpackhi_ps(rows[i].v, rows[i + 1].v);
    }
    for (int i = 0; i < 16; i += 4) {
        b[i] = _mm512_castpd_ps(
            _mm512_unpacklo_pd(_mm512_castps_pd(a[i]), _mm512_castps_pd(a[i + 2])));
        b[i + 1] = _mm512_castpd_ps(
            _mm512_unpackhi_pd(_mm512_castps_pd(a[i]), _mm512_castps_pd(a[i + 2])));
        b[i + 2] = _mm512_castpd_ps(
            _mm512_unpacklo_pd(_mm512_castps_pd(a[i + 1]), _mm512_castps_pd(a[i + 3])));
        b[i + 3] = _mm512_castpd_ps(
            _mm512_unpackhi_pd(_mm512_castps_pd(a[i + 1]), _mm512_castps_pd(a[i + 3])));
    }
    // b[4k + c] holds, per 128-bit group g, column 4g + c of rows 4k .. 4k + 3.
    for (int c = 0; c < 4; ++c) {
        const __m512 low01 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x44);
        const __m512 high01 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xEE);
        const __m512 low23 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x44);
        const __m512 high23 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xEE);
        _mm512_storeu_ps(out + (0 + c) * stride, _mm512_shuffle_f32x4(low01, low23, 0x88));
        _mm512_storeu_ps(out + (4 + c) * stride, _mm512_shuffle_f32x4(low01, low23, 0xDD));
        _mm512_storeu_ps(out + (8 + c) * stride, _mm512_shuffle_f32x4(high01, high23, 0x88));
        _mm512_storeu_ps(out + (12 + c) * stride, _mm512_shuffle_f32x4(high01, high23, 0xDD));
    }
}

// SumLanes of sixteen registers, in two parts. The first leaves of registers t, t + 4, t + 8 and
// t + 12 four lanes each; the second ends with register r's sum in lane r, given those of t = 0, 1,
// 2 and 3.
inline Vec SumFour(const Vec parts[4]) {
    __m512 eights[2];
    for (int i = 0; i < 2; ++i) {
        // One shuffle and one blend, where two shuffles would keep halves in order: sums commute.
        const __m512 a = parts[2 * i].v, b = parts[2 * i + 1].v;
        eights[i] =
            _mm512_add_ps(_mm512_mask_blend_ps(0xFF00, a, b), _mm512_shuffle_f32x4(a, b, 0x4E));
    }
    return {_mm512_add_ps(_mm512_shuffle_f32x4(eights[0], eights[1], 0x88),
                          _mm512_shuffle_f32x4(eights[0], eights[1], 0xDD))};
}
inline Vec SumFours(const Vec fours[4]) {
    __m512 twos[2];
    for (int i = 0; i < 2; ++i) {
        const __m512d a = _mm512_castps_pd(fours[2 * i].v);
        const __m512d b = _mm512_castps_pd(fours[2 * i + 1].v);
        twos[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                                _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    return {_mm512_add_ps(_mm512_shuffle_ps(twos[0], twos[1], 0x88),
                          _mm512_shuffle_ps(twos[0], twos[1], 0xDD))};
}

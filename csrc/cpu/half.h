// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

namespace tokenlight::cpu {

struct Half {
    std::uint16_t bits;
};

struct Bf16 {
    std::uint16_t bits;
};

struct Int8 {
    std::int8_t value;
};

// E4M3 without infinities. Its bits are those of a half that is smaller by kFp8Unit, subnormals
// too, and so it is read: the unit goes into what the number is scaled by. A NaN reads as 480:
// loading refuses them.
struct Fp8 {
    std::uint8_t bits;
};
constexpr float kFp8Unit = 256.0F;

// Elements of a row of `width` numbers in memory: int8 rows end with their scale.
template <class T>
constexpr std::int64_t kRowExtra = 0;
template <>
inline constexpr std::int64_t kRowExtra<Int8> = 4;

template <class T>
inline float ScaleOf(const T*, std::int64_t) {
    return 1.0F;
}
inline float ScaleOf(const Int8* row, std::int64_t width) {
    float scale;
    std::memcpy(&scale, row + width, sizeof(scale));
    return scale;
}

inline float FloatOfBits(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

inline std::uint32_t BitsOfFloat(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}

inline float ToFloat(float value) { return value; }

inline float ToFloat(Int8 value) { return value.value; }

inline float ToFloat(Bf16 value) { return FloatOfBits(std::uint32_t{value.bits} << 16); }

inline float ToFloat(Half value) {
    const std::uint32_t sign = std::uint32_t{value.bits & 0x8000U} << 16;
    const std::uint32_t magnitude = value.bits & 0x7FFFU;
    if (magnitude >= 0x7C00U) return FloatOfBits(sign | 0x7F800000U | (magnitude << 13));
    if (magnitude >= 0x0400U) return FloatOfBits(sign | ((magnitude << 13) + 0x38000000U));
    // Subnormal: an integer times 2^-24.
    return FloatOfBits(sign | BitsOfFloat(static_cast<float>(magnitude) * 0x1p-24F));
}

inline float ToFloat(Fp8 value) {
    const std::uint32_t bits = value.bits;
    return ToFloat(Half{static_cast<std::uint16_t>((bits & 0x80U) << 8 | (bits & 0x7FU) << 7)});
}

inline Bf16 ToBf16(float value) {
    const std::uint32_t bits = BitsOfFloat(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {0x7FC0};
    return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}

// Round to nearest even, as the hardware's conversion does.
inline Half ToHalf(float value) {
    const std::uint32_t bits = BitsOfFloat(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) return {static_cast<std::uint16_t>(sign | 0x7E00U)};
    if (magnitude >= 0x477FF000U) return {static_cast<std::uint16_t>(sign | 0x7C00U)};
    if (magnitude < 0x38800000U) {
        // Below the smallest normal half: adding 0.5 leaves the rounded integer of value * 2^24 in
        // the low bits.
        const std::uint32_t rounded = BitsOfFloat(FloatOfBits(magnitude) + 0.5F) - 0x3F000000U;
        return {static_cast<std::uint16_t>(sign | rounded)};
    }
    const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - 0x38000000U;
    return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

inline void FromFloat(float value, float* out) { *out = value; }
inline void FromFloat(float value, Half* out) { *out = ToHalf(value); }
inline void FromFloat(float value, Bf16* out) { *out = ToBf16(value); }

}  // namespace tokenlight::cpu

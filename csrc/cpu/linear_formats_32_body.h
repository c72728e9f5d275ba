// SPDX-License-Identifier: Apache-2.0
// Formats whose block is 32 weights with one scale, and perhaps a minimum. See
// linear_quantized_body.h.

struct Block32 {
    static constexpr int kBlocks = 1;
    static constexpr int kByteCenter = kNoBytes;
    static constexpr int kHalves = 1;
    static IVec Dot(IVec sum, const Bytes& w, const std::int8_t* x) { return DotSmall(sum, w, x); }
    static IVec Start(std::int32_t correction) { return ISet(correction); }
    static Vec Step(const std::uint8_t* tile, int, int) {
        return Load(reinterpret_cast<const Half*>(tile));
    }
    static Vec Minimum(const std::uint8_t* tile, int, int) {
        return Load(reinterpret_cast<const Half*>(tile + 2 * kTileRows));
    }

  protected:
    // Bits 0-3 of weights 0-15, and of weights 16-31 in the high nibbles.
    static void Nibbles(const std::uint8_t* quants, Bytes w[kVectors]) {
        for (int v = 0; v < kVectors / 2; ++v) {
            const Bytes packed = LoadBytes(quants + 64 * v);
            w[v] = LowNibbles(packed);
            w[v + kVectors / 2] = HighNibbles(packed);
        }
    }
    static void AddFifthBits(const std::uint8_t* masks, Bytes w[kVectors]) {
        for (int v = 0; v < kVectors; ++v) w[v] = WithMask(w[v], masks + 8 * v, 16);
    }
    static void LookUpAll(const std::uint8_t table[16], Bytes w[kVectors]) {
        for (int v = 0; v < kVectors; ++v) w[v] = LookUp(w[v], table);
    }
};

struct Q4_0 : Block32 {
    static constexpr WeightFormat kFormat = WeightFormat::kQ4_0;
    static constexpr int kBits = 4;
    static constexpr bool kHasMinimum = false;
    static constexpr int kWeightBias = 8;
    static void Unpack(const std::uint8_t* tile, int, Bytes w[kVectors]) {
        Nibbles(tile + 2 * kTileRows, w);
    }
};

struct Q4_1 : Block32 {
    static constexpr WeightFormat kFormat = WeightFormat::kQ4_1;
    static constexpr int kBits = 4;
    static constexpr bool kHasMinimum = true;
    static constexpr int kWeightBias = 0;
    static void Unpack(const std::uint8_t* tile, int, Bytes w[kVectors]) {
        Nibbles(tile + 4 * kTileRows, w);
    }
};

struct Q5_0 : Block32 {
    static constexpr WeightFormat kFormat = WeightFormat::kQ5_0;
    static constexpr int kBits = 5;
    static constexpr bool kHasMinimum = false;
    static constexpr int kWeightBias = 16;
    static void Unpack(const std::uint8_t* tile, int, Bytes w[kVectors]) {
        Nibbles(tile + 6 * kTileRows, w);
        AddFifthBits(tile + 2 * kTileRows, w);
    }
};

struct Q5_1 : Block32 {
    static constexpr WeightFormat kFormat = WeightFormat::kQ5_1;
    static constexpr int kBits = 5;
    static constexpr bool kHasMinimum = true;
    static constexpr int kWeightBias = 0;
    static void Unpack(const std::uint8_t* tile, int, Bytes w[kVectors]) {
        Nibbles(tile + 8 * kTileRows, w);
        AddFifthBits(tile + 4 * kTileRows, w);
    }
};

struct Q8_0 : Block32 {
    static constexpr WeightFormat kFormat = WeightFormat::kQ8_0;
    static constexpr int kBits = 8;
    static constexpr int kByteCenter = 0;
    static constexpr bool kHasMinimum = false;
    static constexpr int kWeightBias = 128;
    static void Unpack(const std::uint8_t* tile, int, Bytes w[kVectors]) {
        for (int v = 0; v < kVectors; ++v) w[v] = LoadBytes(tile + 2 * kTileRows + 64 * v);
    }
    static IVec Dot(IVec sum, const Bytes& w, const std::int8_t* x) { return DotBiased(sum, w, x); }
    static IVec Start(std::int32_t correction) { return BiasedStart(correction); }
};

struct Iq4Nl : Q8_0 {
    static constexpr WeightFormat kFormat = WeightFormat::kIq4Nl;
    static constexpr int kByteCenter = kNoBytes;
    static void Unpack(const std::uint8_t* tile, int, Bytes w[kVectors]) {
        std::uint8_t biased[16];
        for (int i = 0; i < 16; ++i) biased[i] = static_cast<std::uint8_t>(kIq4NlValues[i] + 128);
        Nibbles(tile + 2 * kTileRows, w);
        LookUpAll(biased, w);
    }
};

struct Mxfp4 : Block32 {
    static constexpr WeightFormat kFormat = WeightFormat::kMxfp4;
    static constexpr int kBits = 5;
    static constexpr bool kHasMinimum = false;
    static constexpr int kWeightBias = 12;
    static Vec Step(const std::uint8_t* tile, int, int) { return FromHalvedExponents(tile); }
    static void Unpack(const std::uint8_t* tile, int, Bytes w[kVectors]) {
        std::uint8_t biased[16];
        for (int i = 0; i < 16; ++i) biased[i] = static_cast<std::uint8_t>(kMxfp4Values[i] + 12);
        Nibbles(tile + kTileRows, w);
        LookUpAll(biased, w);
    }
};

// SPDX-License-Identifier: Apache-2.0
// Formats whose block is 256 weights: eight blocks of 32, each with one scale or one per half,
// which are whole multiples of the block's own. See linear_quantized_body.h.

struct Block256 {
    static constexpr int kBlocks = 8;
    static constexpr int kByteCenter = kNoBytes;
    static IVec Dot(IVec sum, const Bytes& w, const std::int8_t* x) { return DotSmall(sum, w, x); }
    static IVec Start(std::int32_t correction) { return ISet(correction); }

  protected:
    static Vec HalfScale(const std::uint8_t* tile) {
        return Load(reinterpret_cast<const Half*>(tile));
    }
    static Vec SignedScale(const std::uint8_t* scales, int index) {
        return FromBytes(reinterpret_cast<const std::int8_t*>(scales + kTileRows * index));
    }
    // Fields of 2 bits go through the four blocks of each 128 weights.
    static Bytes TwoBitsOf(const std::uint8_t* fields, int block, int v) {
        return TwoBits(LoadBytes(fields + 64 * (block / 4 * kVectors + v)), block % 4 * 2);
    }
};

// Steps are scale * 6 bits, minimums are -scale * 6 bits.
struct Q4K : Block256 {
    static constexpr WeightFormat kFormat = WeightFormat::kQ4K;
    static constexpr int kBits = 4;
    static constexpr int kByteCenter = 8;
    static constexpr int kHalves = 1;
    static constexpr bool kHasMinimum = true;
    static constexpr int kWeightBias = 0;
    static Vec Step(const std::uint8_t* tile, int block, int) {
        return Mul(HalfScale(tile), FromBytes(tile + kTileRows * (4 + block)));
    }
    static Vec Minimum(const std::uint8_t* tile, int block, int) {
        const Vec scale = Sub(Zero(), HalfScale(tile + 2 * kTileRows));
        return Mul(scale, FromBytes(tile + kTileRows * (12 + block)));
    }
    static void Unpack(const std::uint8_t* tile, int block, Bytes w[kVectors]) {
        Nibbles(tile + 20 * kTileRows, block, w);
    }

  protected:
    // Low nibbles are an even block of 32, high nibbles the next.
    static void Nibbles(const std::uint8_t* quants, int block, Bytes w[kVectors]) {
        for (int v = 0; v < kVectors; ++v) {
            const Bytes packed = LoadBytes(quants + 64 * (block / 2 * kVectors + v));
            w[v] = block % 2 == 0 ? LowNibbles(packed) : HighNibbles(packed);
        }
    }
};

struct Q5K : Q4K {
    static constexpr WeightFormat kFormat = WeightFormat::kQ5K;
    static constexpr int kBits = 5;
    static constexpr int kByteCenter = 16;
    static void Unpack(const std::uint8_t* tile, int block, Bytes w[kVectors]) {
        Nibbles(tile + 52 * kTileRows, block, w);
        for (int v = 0; v < kVectors; ++v) {
            w[v] = WithBit(w[v], LoadBytes(tile + 20 * kTileRows + 64 * v), block, 16);
        }
    }
};

struct Q6K : Block256 {
    static constexpr WeightFormat kFormat = WeightFormat::kQ6K;
    static constexpr int kBits = 6;
    static constexpr int kByteCenter = 32;
    static constexpr int kHalves = 2;
    static constexpr bool kHasMinimum = false;
    static constexpr int kWeightBias = 32;
    static Vec Step(const std::uint8_t* tile, int block, int half) {
        return Mul(HalfScale(tile), SignedScale(tile + 2 * kTileRows, 2 * block + half));
    }
    static void Unpack(const std::uint8_t* tile, int block, Bytes w[kVectors]) {
        const std::uint8_t* nibbles =
            tile + 18 * kTileRows + 64 * (block / 4 * 2 + block % 2) * kVectors;
        for (int v = 0; v < kVectors; ++v) {
            const Bytes packed = LoadBytes(nibbles + 64 * v);
            const Bytes low = block % 4 < 2 ? LowNibbles(packed) : HighNibbles(packed);
            w[v] = WithHigh(low, TwoBitsOf(tile + 146 * kTileRows, block, v));
        }
    }
};

struct Q3K : Block256 {
    static constexpr WeightFormat kFormat = WeightFormat::kQ3K;
    static constexpr int kBits = 3;
    static constexpr int kHalves = 2;
    static constexpr bool kHasMinimum = false;
    static constexpr int kWeightBias = 4;
    static Vec Step(const std::uint8_t* tile, int block, int half) {
        return Mul(HalfScale(tile), SignedScale(tile + 2 * kTileRows, 2 * block + half));
    }
    static void Unpack(const std::uint8_t* tile, int block, Bytes w[kVectors]) {
        for (int v = 0; v < kVectors; ++v) {
            const Bytes low = TwoBitsOf(tile + 50 * kTileRows, block, v);
            w[v] = WithBit(low, LoadBytes(tile + 18 * kTileRows + 64 * v), block, 4);
        }
    }
};

// A byte holds a half's step in its low nibble and its minimum in the high one.
struct Q2K : Block256 {
    static constexpr WeightFormat kFormat = WeightFormat::kQ2K;
    static constexpr int kBits = 2;
    static constexpr int kHalves = 2;
    static constexpr bool kHasMinimum = true;
    static constexpr int kWeightBias = 0;
    static Vec Step(const std::uint8_t* tile, int block, int half) {
        return Mul(HalfScale(tile), Scale(tile, block, half, 0));
    }
    static Vec Minimum(const std::uint8_t* tile, int block, int half) {
        const Vec scale = Sub(Zero(), HalfScale(tile + 2 * kTileRows));
        return Mul(scale, Scale(tile, block, half, 4));
    }
    static void Unpack(const std::uint8_t* tile, int block, Bytes w[kVectors]) {
        for (int v = 0; v < kVectors; ++v) w[v] = TwoBitsOf(tile + 20 * kTileRows, block, v);
    }

  private:
    static Vec Scale(const std::uint8_t* tile, int block, int half, int shift) {
        const std::uint8_t* both = tile + kTileRows * (4 + 2 * block + half);
        std::uint8_t nibbles[kTileRows];
        for (int i = 0; i < kTileRows; ++i) nibbles[i] = both[i] >> shift & 0xF;
        return FromBytes(nibbles);
    }
};

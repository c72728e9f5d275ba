// SPDX-License-Identifier: Apache-2.0
#include "cpu/pack.h"

#include <array>
#include <cstring>
#include <stdexcept>

namespace tokenlight::cpu {
namespace {

using Bytes = const std::uint8_t*;

std::uint32_t WordAt(Bytes p) {
    std::uint32_t word;
    std::memcpy(&word, p, sizeof(word));
    return word;
}

void PutWord(std::uint8_t* p, std::uint32_t word) { std::memcpy(p, &word, sizeof(word)); }

// A piece of a block copied as it is: where it lies in the file, and how long it is.
struct Piece {
    int start;
    int num_bytes;
};

// The inverses of tile16.py's order: a stored block becomes its sections one after another.
void Join(Bytes block, std::initializer_list<Piece> pieces, std::uint8_t* out) {
    for (const Piece piece : pieces) {
        std::memcpy(out, block + piece.start, static_cast<std::size_t>(piece.num_bytes));
        out += piece.num_bytes;
    }
}

// The dot product wants these quants unsigned.
void OrderQ8(Bytes block, std::uint8_t* out) {
    std::memcpy(out, block, 2);
    for (int i = 2; i < 34; ++i) out[i] = block[i] ^ 0x80;
}

// 6-bit scales and minimums become bytes: of four numbers at once, two bits each move.
void OrderQ45K(Bytes block, int num_bytes, std::uint8_t* out) {
    const std::uint32_t first = WordAt(block + 4), second = WordAt(block + 8),
                        shared = WordAt(block + 12);
    std::memcpy(out, block, 4);
    PutWord(out + 4, first & 0x3F3F3F3FU);
    PutWord(out + 8, (shared & 0x0F0F0F0FU) | (first >> 2 & 0x30303030U));
    PutWord(out + 12, second & 0x3F3F3F3FU);
    PutWord(out + 16, (shared >> 4 & 0x0F0F0F0FU) | (second >> 2 & 0x30303030U));
    std::memcpy(out + 20, block + 16, static_cast<std::size_t>(num_bytes - 16));
}

// 6-bit scales become signed bytes.
void OrderQ3K(Bytes block, std::uint8_t* out) {
    Join(block, {{108, 2}}, out);
    Bytes low = block + 96, high = block + 104;
    for (int i = 0; i < 16; ++i) {
        const int nibble = low[i % 8] >> (i / 8 * 4) & 0xF;
        const int upper = high[i % 4] >> (i / 4 * 2) & 3;
        out[2 + i] = static_cast<std::uint8_t>((nibble | upper << 4) - 32);
    }
    Join(block, {{0, 96}}, out + 18);
}

template <WeightFormat F>
constexpr int kFileBytes = LayoutOf(F).Bytes();
template <>
constexpr int kFileBytes<WeightFormat::kQ3K> = 110;
template <>
constexpr int kFileBytes<WeightFormat::kQ4K> = 144;
template <>
constexpr int kFileBytes<WeightFormat::kQ5K> = 176;

// The block in the order of its sections: where it is, or made in `scratch`.
template <WeightFormat F>
Bytes Ordered(Bytes block, std::uint8_t* scratch) {
    if constexpr (F == WeightFormat::kQ8_0) {
        OrderQ8(block, scratch);
    } else if constexpr (F == WeightFormat::kQ4K || F == WeightFormat::kQ5K) {
        OrderQ45K(block, kFileBytes<F>, scratch);
    } else if constexpr (F == WeightFormat::kQ6K) {
        Join(block, {{208, 2}, {192, 16}, {0, 192}}, scratch);
    } else if constexpr (F == WeightFormat::kQ3K) {
        OrderQ3K(block, scratch);
    } else if constexpr (F == WeightFormat::kQ2K) {
        Join(block, {{80, 4}, {0, 80}}, scratch);
    } else {
        return block;
    }
    return scratch;
}

using TileBlocks = std::array<Bytes, kTileRows>;

// Element i of row 0, of row 1, ... of row 15, then element i + 1.
template <class T>
std::uint8_t* Interleave(const TileBlocks& blocks, int start, int count, std::uint8_t* out) {
    for (int i = 0; i < count; ++i) {
        for (int row = 0; row < kTileRows; ++row, out += sizeof(T)) {
            std::memcpy(out, blocks[row] + start + i * int{sizeof(T)}, sizeof(T));
        }
    }
    return out;
}

// The same for words, whose number is a multiple of four: four words of four rows at a time, as a
// matrix that is transposed in registers.
std::uint8_t* InterleaveWords(const TileBlocks& blocks, int start, int count, std::uint8_t* out) {
    using Words [[gnu::vector_size(16)]] = std::uint32_t;
    constexpr int kRowBytes = kTileRows * int{sizeof(std::uint32_t)};
    for (int i = 0; i < count; i += 4, out += 4 * kRowBytes) {
        for (int row = 0; row < kTileRows; row += 4) {
            Words from[4];
            for (int r = 0; r < 4; ++r) {
                std::memcpy(&from[r], blocks[row + r] + start + 4 * i, sizeof(Words));
            }
            const Words low01 = __builtin_shufflevector(from[0], from[1], 0, 4, 1, 5);
            const Words low23 = __builtin_shufflevector(from[2], from[3], 0, 4, 1, 5);
            const Words high01 = __builtin_shufflevector(from[0], from[1], 2, 6, 3, 7);
            const Words high23 = __builtin_shufflevector(from[2], from[3], 2, 6, 3, 7);
            const Words to[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                                 __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                                 __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                                 __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
            for (int j = 0; j < 4; ++j) {
                std::memcpy(out + j * kRowBytes + 4 * row, &to[j], sizeof(Words));
            }
        }
    }
    return out;
}

// The same for eight nibbles of each row: nibble i of all rows is one 64-bit word.
std::uint8_t* InterleaveNibbles(const TileBlocks& blocks, int start, std::uint8_t* out) {
    std::uint64_t words[8] = {};
    for (int row = 0; row < kTileRows; ++row) {
        const std::uint32_t nibbles = WordAt(blocks[row] + start);
        for (int i = 0; i < 8; ++i) {
            words[i] |= std::uint64_t{nibbles >> (4 * i) & 0xF} << (4 * row);
        }
    }
    std::memcpy(out, words, sizeof(words));
    return out + sizeof(words);
}

template <WeightFormat F>
std::uint8_t* PackTileBlock(const TileBlocks& blocks, std::uint8_t* out) {
    constexpr BlockLayout kLayout = LayoutOf(F);
    int start = 0;
    for (int s = 0; s < kLayout.num_sections; ++s) {
        const Section section = kLayout.sections[s];
        switch (section.bits) {
            case 4:
                out = InterleaveNibbles(blocks, start, out);
                break;
            case 8:
                out = Interleave<std::uint8_t>(blocks, start, section.count, out);
                break;
            case 16:
                out = Interleave<std::uint16_t>(blocks, start, section.count, out);
                break;
            default:
                out = InterleaveWords(blocks, start, section.count, out);
        }
        start += section.Bytes();
    }
    return out;
}

template <WeightFormat F>
void PackTile(const PackArgs& a, std::int64_t first_row, std::uint8_t* out) {
    std::uint8_t scratch[kTileRows][LayoutOf(F).Bytes()];
    TileBlocks blocks;
    // Rows are short streams, of which the processor foresees nothing: ask for the next tile's.
    const std::int64_t ahead = first_row + 2 * kTileRows <= a.num_rows ? kTileRows : 0;
    for (std::int64_t b = 0; b < a.num_blocks; ++b) {
        for (int row = 0; row < kTileRows; ++row) {
            for (int byte = 0; byte < kFileBytes<F>; byte += 64) {
                __builtin_prefetch(a.rows[first_row + row + ahead] + b * kFileBytes<F> + byte);
            }
            blocks[row] = Ordered<F>(a.rows[first_row + row] + b * kFileBytes<F>, scratch[row]);
        }
        out = PackTileBlock<F>(blocks, out);
    }
}

// The rows after the last full tile stay rows, of ordered blocks.
template <WeightFormat F>
void PackTail(const PackArgs& a, std::int64_t first_row, std::uint8_t* out) {
    constexpr int kBytes = LayoutOf(F).Bytes();
    std::uint8_t scratch[kBytes];
    for (std::int64_t row = first_row; row < a.num_rows; ++row) {
        for (std::int64_t b = 0; b < a.num_blocks; ++b, out += kBytes) {
            std::memcpy(out, Ordered<F>(a.rows[row] + b * kFileBytes<F>, scratch), kBytes);
        }
    }
}

template <WeightFormat F>
void PackRows(const PackArgs& a, Worker& worker) {
    const std::int64_t num_tiles = a.num_rows / kTileRows;
    const std::int64_t row_bytes = a.num_blocks * LayoutOf(F).Bytes();
    for (std::int64_t tile = worker.Next(); tile <= num_tiles; tile = worker.Next()) {
        const std::int64_t first_row = tile * kTileRows;
        std::uint8_t* out = a.out + first_row * row_bytes;
        if (tile < num_tiles) {
            PackTile<F>(a, first_row, out);
        } else {
            PackTail<F>(a, first_row, out);
        }
    }
}

}  // namespace

void CheckPack(const PackArgs& args) {
    if (IsDense(args.format)) throw std::invalid_argument("dense weights are not packed in tiles");
}

void Pack(const PackArgs& args, Worker& worker) {
    switch (args.format) {
        case WeightFormat::kF32:
        case WeightFormat::kF16:
        case WeightFormat::kBf16:
        case WeightFormat::kFp8E4m3x32:
        case WeightFormat::kFp8E4m3x64:
        case WeightFormat::kFp8E4m3x128:
            return;
        case WeightFormat::kQ4_0:
            return PackRows<WeightFormat::kQ4_0>(args, worker);
        case WeightFormat::kQ4_1:
            return PackRows<WeightFormat::kQ4_1>(args, worker);
        case WeightFormat::kQ5_0:
            return PackRows<WeightFormat::kQ5_0>(args, worker);
        case WeightFormat::kQ5_1:
            return PackRows<WeightFormat::kQ5_1>(args, worker);
        case WeightFormat::kQ8_0:
            return PackRows<WeightFormat::kQ8_0>(args, worker);
        case WeightFormat::kIq4Nl:
            return PackRows<WeightFormat::kIq4Nl>(args, worker);
        case WeightFormat::kMxfp4:
            return PackRows<WeightFormat::kMxfp4>(args, worker);
        case WeightFormat::kQ2K:
            return PackRows<WeightFormat::kQ2K>(args, worker);
        case WeightFormat::kQ3K:
            return PackRows<WeightFormat::kQ3K>(args, worker);
        case WeightFormat::kQ4K:
            return PackRows<WeightFormat::kQ4K>(args, worker);
        case WeightFormat::kQ5K:
            return PackRows<WeightFormat::kQ5K>(args, worker);
        case WeightFormat::kQ6K:
            return PackRows<WeightFormat::kQ6K>(args, worker);
    }
}

}  // namespace tokenlight::cpu

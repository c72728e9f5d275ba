// SPDX-License-Identifier: Apache-2.0
// A product of tiles with rounded activations, over a format F (linear_formats_*_body.h), which
// says how 32 weights of each of 16 rows become 8 registers of whole numbers (Unpack), where their
// sums start (Start) and what turns sums into floats (Step, Minimum).

template <class F>
constexpr std::int64_t kTileBlockBytes = kTileRows * LayoutOf(F::kFormat).Bytes();

// How far ahead of its use a product with few rows asks for its weights.
constexpr int kPrefetchBytes = 4096;

// Registers of weights, of which a half's sums are made.
template <class F>
constexpr int kHalfVectors = kVectors / F::kHalves;

// Of these, as many as 16 bits hold the sum of a pair's products with bytes: two of each register's
// four, with weights of at most 2^F::kBits - 1 (where Dot is DotSmall: others have 8). Two of 6
// bits would fit as well.
template <class F>
constexpr int kShortVectors = F::kBits <= 4   ? kHalfVectors<F>
                              : F::kBits == 5 ? 4
                                              : 1;

// The sum of a half's products with weights w.
template <class F>
inline IVec SumOfHalf(const XBlock& x, int half, const Bytes w[kVectors]) {
    IVec high = ISet(0);
    IVec low = F::Start(x.start[half]);
    const int first = half * kHalfVectors<F>;
    if constexpr (kAddsShorts && kShortVectors<F> > 1) {
        static_assert(kHalfVectors<F> % kShortVectors<F> == 0);
        static_assert(2 * kShortVectors<F> * 127 * ((1 << F::kBits) - 1) <= 32767);
        for (int v = first; v < first + kHalfVectors<F>; v += kShortVectors<F>) {
            high = DotShorts<kShortVectors<F>>(high, w + v, x.high + 4 * v);
            low = DotShorts<kShortVectors<F>>(low, w + v, x.low + 4 * v);
        }
    } else {
        for (int v = first; v < first + kHalfVectors<F>; ++v) {
            high = F::Dot(high, w[v], x.high + 4 * v);
            low = F::Dot(low, w[v], x.low + 4 * v);
        }
    }
    return Join(high, low);
}
template <class F>
inline IVec SumOfHalf(const XByteBlock& x, int half, const Bytes w[kVectors]) {
    IVec sum = F::Start(x.start[half]);
    const int first = half * kHalfVectors<F>;
    for (int v = first; v < first + kHalfVectors<F>; ++v) sum = F::Dot(sum, w[v], x.quants + 4 * v);
    return sum;
}

// The products of one tile with R rows, `stride` blocks apart. The order of additions is the same
// for every R.
template <class F, int R, class Block>
inline void TileTimesRows(const std::uint8_t* tile, const Block* x, std::int64_t stride,
                          int num_blocks, Vec y[R]) {
    constexpr int kPrefetchShare = static_cast<int>(kTileBlockBytes<F> / F::kBlocks);
    for (int r = 0; r < R; ++r) y[r] = Zero();
    for (int b = 0; b < num_blocks; ++b, ++x) {
        const int block = b % F::kBlocks;
        const std::uint8_t* ahead = tile + kPrefetchBytes + block * kPrefetchShare;
        for (int at = 0; at < kPrefetchShare; at += 64) Prefetch(ahead + at);
        Bytes w[kVectors];
        F::Unpack(tile, block, w);
        for (int half = 0; half < F::kHalves; ++half) {
            const Vec step = F::Step(tile, block, half);
            for (int r = 0; r < R; ++r) {
                const Block& row = x[r * stride];
                const Vec product = Mul(ToFloats(SumOfHalf<F>(row, half, w)), step);
                y[r] = Fma(product, Set(row.step), y[r]);
            }
            if constexpr (F::kHasMinimum) {
                const Vec minimum = F::Minimum(tile, block, half);
                for (int r = 0; r < R; ++r) {
                    y[r] = Fma(minimum, Set(x[r * stride].step_sum[half]), y[r]);
                }
            }
        }
        if (block == F::kBlocks - 1) tile += kTileBlockBytes<F>;
    }
}

// Sums of products of weights and activations, of two pairs of each lane at a time, one by one.
struct StraightPairs {
    static constexpr bool Crosses(int) { return false; }
    static IVec Cross(IVec cross, const Pairs&, const Pairs&) { return cross; }
    static IVec Start(const std::int32_t*, std::int32_t) { return ISet(0); }
    static IVec Dot(IVec sum, const Pairs& even, const Pairs& odd, const std::int16_t* x) {
        return DotPairs(DotPairs(sum, even, x), odd, x + 2);
    }
};

// Of four activations, the v-th of a block.
template <class By>
inline IVec DotFour(IVec sum, int v, const Pairs& even, const Pairs& odd, const std::int16_t* x) {
    return By::Crosses(v) ? By::Dot(sum, even, odd, x) : StraightPairs::Dot(sum, even, odd, x);
}

// The same sums over activations of 16 bits, which share weights that are widened to as many.
template <class F, int R, class By = CrossedPairs>
inline void TileTimesRows(const std::uint8_t* tile, const XPairBlock* x, std::int64_t stride,
                          int num_blocks, Vec y[R]) {
    constexpr int kPrefetchShare = static_cast<int>(kTileBlockBytes<F> / F::kBlocks);
    for (int r = 0; r < R; ++r) y[r] = Zero();
    for (int b = 0; b < num_blocks; ++b, ++x) {
        const int block = b % F::kBlocks;
        const std::uint8_t* ahead = tile + kPrefetchBytes + block * kPrefetchShare;
        for (int at = 0; at < kPrefetchShare; at += 64) Prefetch(ahead + at);
        Bytes w[kVectors];
        F::Unpack(tile, block, w);
        for (int half = 0; half < F::kHalves; ++half) {
            IVec cross = ISet(0), sum[R];
            for (int r = 0; r < R; ++r) sum[r] = ISet(x[r * stride].start[half]);
#pragma GCC unroll 8
            for (int i = 0; i < kHalfVectors<F>; ++i) {
                const int v = half * kHalfVectors<F> + i;
                const Pairs even = EvenBytes(w[v], F::kWeightBias);
                const Pairs odd = OddBytes(w[v], F::kWeightBias);
                if (By::Crosses(v)) cross = By::Cross(cross, even, odd);
                for (int r = 0; r < R; ++r) {
                    sum[r] = DotFour<By>(sum[r], v, even, odd, x[r * stride].pairs + 4 * v);
                }
            }
            const Vec step = F::Step(tile, block, half);
            for (int r = 0; r < R; ++r) {
                const Vec product = Mul(ToFloats(By::Finish(sum[r], cross)), step);
                y[r] = Fma(product, Set(x[r * stride].step), y[r]);
            }
            if constexpr (F::kHasMinimum) {
                const Vec minimum = F::Minimum(tile, block, half);
                for (int r = 0; r < R; ++r) {
                    y[r] = Fma(minimum, Set(x[r * stride].step_sum[half]), y[r]);
                }
            }
        }
        if (block == F::kBlocks - 1) tile += kTileBlockBytes<F>;
    }
}

// 16 columns of W x + bias, and where they go: all there are from `column` on.
struct Output {
    const LinearArgs& args;
    std::int64_t column;
    int count;

    Output(const LinearArgs& a, std::int64_t first)
        : args(a),
          column(first),
          count(static_cast<int>(Least<std::int64_t>(kTileRows, a.n - first))) {}

    float* At(std::int64_t row) const { return args.y + row * args.OutputColumns() + column; }
    Vec WithBias(Vec y) const {
        if (args.bias == nullptr) return y;
        const float* bias = args.bias + column;
        return Add(y, count == kTileRows ? Load(bias) : LoadN(bias, count));
    }
};

// The registers of R rows to an output; whether it is a whole tile is asked once.
template <int R>
inline void WriteRows(const Output& out, std::int64_t row, const Vec y[R]) {
    float* to = out.At(row);
    const std::int64_t stride = out.args.OutputColumns();
    if (out.count == kTileRows) {
        for (int r = 0; r < R; ++r) Store(to + r * stride, y[r]);
    } else {
        for (int r = 0; r < R; ++r) StoreN(to + r * stride, y[r], out.count);
    }
}

// As SiluMul has it.
inline Vec Gated(Vec gate, Vec up) { return Mul(Mul(gate, Sigmoid(gate)), up); }

template <class F, int R, class Block>
inline void TileRows(const std::uint8_t* tile, const std::uint8_t* up_tile, const Block* x,
                     std::int64_t row, const Output& out) {
    const std::int64_t stride = out.args.k / kBlockElements;
    const int num_blocks = static_cast<int>(stride);
    Vec y[R];
    TileTimesRows<F, R>(tile, x + row * stride, stride, num_blocks, y);
    for (int r = 0; r < R; ++r) y[r] = out.WithBias(y[r]);
    if (up_tile != nullptr) {
        const Output up(out.args, out.column + out.args.n / 2);
        Vec u[R];
        TileTimesRows<F, R>(up_tile, x + row * stride, stride, num_blocks, u);
        for (int r = 0; r < R; ++r) y[r] = Gated(y[r], up.WithBias(u[r]));
    }
    WriteRows<R>(out, row, y);
}

constexpr float kZeros[kBlockElements] = {};

// How the 32 activations at `x` are rounded: multiples of `step`, found by multiplying with
// `inverse`.
struct Rounding {
    const float* x;
    float inverse;
    float step;
};

// Infinity or NaN among the activations makes `step` NaN, and so the whole row of products: nothing
// that follows may take it for numbers.
inline Rounding RoundingOf(const float* x, float max_quant) {
    const Vec first = Abs(Load(x)), second = Abs(Load(x + kLanes));
    if (!AllLess(Add(first, second), Set(INFINITY))) return {kZeros, 0.0F, NAN};
    const float most = MaxLane(Max(first, second));
    // Below this, max_quant / most may overflow; such a block counts as zero.
    if (!(most > 1e-30F)) return {x, 0.0F, 0.0F};
    return {x, max_quant / most, most / max_quant};
}

template <class F>
inline void RoundRow(const LinearArgs& a, std::int64_t row, XBlock* blocks) {
    const float* x = a.x + row * a.x_stride;
    const std::int64_t num_blocks = a.k / kBlockElements;
    XBlock* block = blocks + row * num_blocks;
    for (std::int64_t b = 0; b < num_blocks; ++b, ++block, x += kBlockElements) {
        const Rounding by = RoundingOf(x, kMaxQuant);
        std::int32_t sums[2] = {
            RoundToInt15(by.x, by.inverse, block->high, block->low),
            RoundToInt15(by.x + kLanes, by.inverse, block->high + kLanes, block->low + kLanes)};
        if constexpr (F::kHalves == 1) sums[0] += sums[1];
        block->step = by.step;
        for (int half = 0; half < F::kHalves; ++half) {
            block->step_sum[half] = by.step * static_cast<float>(sums[half]);
            block->start[half] = -F::kWeightBias * sums[half];
        }
    }
}

template <class F>
inline void RoundRow(const LinearArgs& a, std::int64_t row, XPairBlock* blocks) {
    const float* x = a.x + row * a.x_stride;
    const std::int64_t num_blocks = a.k / kBlockElements;
    XPairBlock* block = blocks + row * num_blocks;
    for (std::int64_t b = 0; b < num_blocks; ++b, ++block, x += kBlockElements) {
        const Rounding by = RoundingOf(x, kMaxQuant);
        std::int32_t sums[2];
        std::uint32_t starts[2] = {};
        RoundToPairs(by.x, by.inverse, block->pairs, sums, starts);
        if constexpr (F::kHalves == 1) {
            sums[0] += sums[1];
            starts[0] += starts[1];
        }
        block->step = by.step;
        for (int half = 0; half < F::kHalves; ++half) {
            block->start[half] = static_cast<std::int32_t>(starts[half]);
            block->step_sum[half] = by.step * static_cast<float>(sums[half]);
        }
    }
}

template <class F>
inline void RoundRow(const LinearArgs& a, std::int64_t row, XByteBlock* blocks) {
    constexpr int kCenter = F::kByteCenter;
    const float* x = a.x + row * a.x_stride;
    const std::int64_t num_blocks = a.k / kBlockElements;
    XByteBlock* block = blocks + row * num_blocks;
    for (std::int64_t b = 0; b < num_blocks; ++b, ++block, x += kBlockElements) {
        const Rounding by = RoundingOf(x, MaxByteQuant(kCenter));
        std::int32_t sums[2], products[2] = {};
        RoundToBytes(by.x, by.inverse, kCenter, block->quants, sums, products);
        if constexpr (F::kHalves == 1) {
            sums[0] += sums[1];
            products[0] += products[1];
        }
        block->step = by.step;
        for (int half = 0; half < F::kHalves; ++half) {
            block->step_sum[half] = by.step * static_cast<float>(sums[half]);
            block->start[half] = -F::kWeightBias * sums[half];
            block->crossed_start[half] = (kCenter - F::kWeightBias) * sums[half] - products[half];
        }
    }
}

// A worker's own piece of scratch.
inline std::uint8_t* WorkerScratch(const LinearArgs& a, const Worker& worker) {
    return static_cast<std::uint8_t*>(a.scratch) + SharedBytes(a) + worker.index() * WorkerBytes(a);
}

// The rows after the last full tile, which are ordered blocks row after row, as a tile whose other
// rows are zero.
template <class F>
inline void GatherTail(const LinearArgs& a, std::uint8_t* tile) {
    constexpr BlockLayout kLayout = LayoutOf(F::kFormat);
    const int num_rows = static_cast<int>(a.n % kTileRows);
    const std::int64_t num_blocks = a.k / kLayout.num_elements;
    std::memset(tile, 0, static_cast<std::size_t>(num_blocks * kTileBlockBytes<F>));
    const auto* block = static_cast<const std::uint8_t*>(a.weight) +
                        (a.n - num_rows) * num_blocks * kLayout.Bytes();
    for (int r = 0; r < num_rows; ++r) {
        for (std::int64_t b = 0; b < num_blocks; ++b) {
            PutRow(kLayout, block, r, tile + b * kTileBlockBytes<F>);
            block += kLayout.Bytes();
        }
    }
}

// The tile of columns from 16 t on.
template <class F>
inline const std::uint8_t* FindTile(const LinearArgs& a, std::int64_t t, std::uint8_t* tail) {
    if ((t + 1) * kTileRows <= a.n) {
        return static_cast<const std::uint8_t*>(a.weight) + t * kTileRows * RowBytes(a.format, a.k);
    }
    GatherTail<F>(a, tail);
    return tail;
}

// Asks for activations, which another core may have written.
inline void PrefetchRows(const LinearArgs& a) {
    for (std::int64_t row = 0; row < a.num_rows; ++row) {
        for (std::int64_t i = 0; i < a.k; i += kLanes) Prefetch(a.x + row * a.x_stride + i);
    }
}

// Asks for the first weights of a tile while something else is done.
inline void PrefetchStart(const LinearArgs& a, std::int64_t t) {
    const auto* tile =
        static_cast<const std::uint8_t*>(a.weight) + t * kTileRows * RowBytes(a.format, a.k);
    for (int at = 0; at < kPrefetchBytes; at += 64) Prefetch(tile + at);
}

// The product for few rows.
template <class F, class Block>
inline void TileProduct(const LinearJob& job, Worker& worker) {
    const LinearArgs& a = job.args;
    const std::int64_t num_tiles = (a.OutputColumns() + kTileRows - 1) / kTileRows;
    if (RoundsPrivately(a)) PrefetchRows(a);
    PrefetchStart(a, worker.Start(num_tiles));
    std::uint8_t* tail = WorkerScratch(a, worker);
    auto* x = static_cast<Block*>(a.scratch);
    if (RoundsPrivately(a)) {
        x = reinterpret_cast<Block*>(tail + TailBytes(a));
        for (std::int64_t row = 0; row < a.num_rows; ++row) RoundRow<F>(a, row, x);
    }
    for (;;) {
        const Piece piece = worker.Take(num_tiles);
        if (piece.first == piece.last) return;
        for (std::int64_t t = piece.first; t < piece.last; ++t) {
            const std::uint8_t* tile = FindTile<F>(a, t, tail);
            const std::uint8_t* up = a.is_gated ? FindTile<F>(a, t + num_tiles, tail) : nullptr;
            const Output out(a, t * kTileRows);
            std::int64_t row = 0;
            if constexpr (kMaxTileRows >= 8) {
                for (; a.num_rows - row >= 8; row += 8) TileRows<F, 8>(tile, up, x, row, out);
            }
            for (; a.num_rows - row >= 4; row += 4) TileRows<F, 4>(tile, up, x, row, out);
            for (; a.num_rows - row >= 2; row += 2) TileRows<F, 2>(tile, up, x, row, out);
            for (; a.num_rows - row >= 1; row += 1) TileRows<F, 1>(tile, up, x, row, out);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cpu/activation.h"
#include "cpu/embedding.h"
#include "cpu/half.h"
#include "cpu/linear.h"
#include "cpu/scratch.h"
#include "tests/cpu_check.h"

namespace tokenlight::cpu {
namespace {

// Any bytes, with scales made finite and small: they are the first section of a block, in a tile's
// block those of its 16 rows.
void Fill(WeightFormat format, std::vector<std::uint8_t>& weight, std::int64_t n, std::int64_t k) {
    if (format == WeightFormat::kF32) {
        const std::vector<float> values = RandomFloats(weight.size() / 4, 2);
        std::memcpy(weight.data(), values.data(), weight.size());
        return;
    }
    std::mt19937 engine(1);
    for (std::uint8_t& byte : weight) byte = static_cast<std::uint8_t>(engine());
    const BlockLayout layout = LayoutOf(format);
    const std::int64_t tiled_bytes = n / kTileRows * kTileRows * RowBytes(format, k);
    for (std::int64_t at = 0; at < static_cast<std::int64_t>(weight.size());) {
        const std::int64_t rows = !IsDense(format) && at < tiled_bytes ? kTileRows : 1;
        if (layout.sections[0].bits == 32) {  // FP8's
            const float scale = 0.25F + static_cast<float>(at % 7);
            std::memcpy(weight.data() + at, &scale, sizeof(scale));
            at += layout.Bytes();
            continue;
        }
        const bool is_exponent = layout.sections[0].bits == 8;
        for (std::int64_t i = is_exponent ? 0 : 1; i < rows * layout.sections[0].Bytes();
             i += is_exponent ? 1 : 2) {
            std::uint8_t& byte = weight[static_cast<std::size_t>(at + i)];
            byte = is_exponent ? static_cast<std::uint8_t>(120 + byte % 8)
                               : static_cast<std::uint8_t>((byte & 0x83) | 0x28);
        }
        at += rows * layout.Bytes();
    }
}

// Whether the products under test round activations to bytes where they may.
bool rounds_to_bytes = false;

// The largest of a block's activations with which whole ones are rounded to themselves.
int MaxWhole(WeightFormat format) {
    if (!rounds_to_bytes) return 127;
    switch (format) {
        case WeightFormat::kQ4K:
            return 120;
        case WeightFormat::kQ5K:
            return 112;
        case WeightFormat::kQ6K:
            return 96;
        default:
            return 127;
    }
}

// Against the sum of products of the rows that Embedding gives, in double.
void TestProduct(WeightFormat format, std::int64_t num_rows, std::int64_t n, std::int64_t k) {
    std::vector<std::uint8_t> weight(static_cast<std::size_t>(n * RowBytes(format, k)));
    Fill(format, weight, n, k);
    std::vector<float> x(static_cast<std::size_t>(num_rows * k));
    for (std::size_t i = 0; i < x.size(); ++i) {
        const int most = MaxWhole(format);
        x[i] = i % 32 == 0 ? static_cast<float>(most)
                           : static_cast<float>(static_cast<int>(i * 37 % (2 * most + 1)) - most);
    }
    const std::vector<float> bias = RandomFloats(static_cast<std::size_t>(n), 3);
    std::vector<float> y(static_cast<std::size_t>(num_rows * n), NAN);
    LinearArgs args{y.data(), x.data(), weight.data(), bias.data(), num_rows, n,
                    k,        k,        format,        nullptr};
    args.rounds_to_bytes = rounds_to_bytes;
    ThreadPool& pool = ThreadPool::Get();
    args.scratch = ThreadScratch(LinearScratchBytes(args, pool.num_threads()));
    Linear(args, pool, pool.num_threads());

    std::vector<float> rows(static_cast<std::size_t>(n * k), NAN);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
    const EmbeddingArgs gather{rows.data(), ids.data(), weight.data(), n, n, k, format};
    CheckIds(gather);
    pool.Run(Embedding, gather, pool.num_threads());
    for (std::int64_t t = 0; t < num_rows; ++t) {
        for (std::int64_t c = 0; c < n; ++c) {
            double want = bias[static_cast<std::size_t>(c)], magnitude = 1;
            for (std::int64_t i = 0; i < k; ++i) {
                const double product = double{x[static_cast<std::size_t>(t * k + i)]} *
                                       rows[static_cast<std::size_t>(c * k + i)];
                want += product;
                magnitude += std::fabs(product);
            }
            const auto at = static_cast<std::size_t>(t * n + c);
            CheckClose(y[at] / magnitude, want / magnitude, 1e-5, "linear", at);
        }
    }
}

// The bits of a product and SiluMul of it, for few rows and for many.
void TestGated(WeightFormat format, std::int64_t num_rows, std::int64_t half, std::int64_t k) {
    const std::int64_t n = 2 * half;
    std::vector<std::uint8_t> weight(static_cast<std::size_t>(n * RowBytes(format, k)));
    Fill(format, weight, n, k);
    const std::vector<float> x = RandomFloats(static_cast<std::size_t>(num_rows * k), 4);
    const std::vector<float> bias = RandomFloats(static_cast<std::size_t>(n), 3);
    std::vector<float> both(static_cast<std::size_t>(num_rows * n)), want(both.size() / 2),
        got(both.size() / 2, NAN);
    ThreadPool& pool = ThreadPool::Get();
    for (const bool is_gated : {false, true}) {
        LinearArgs args{is_gated ? got.data() : both.data(),
                        x.data(),
                        weight.data(),
                        bias.data(),
                        num_rows,
                        n,
                        k,
                        k,
                        format,
                        nullptr,
                        is_gated,
                        rounds_to_bytes};
        args.scratch = ThreadScratch(LinearScratchBytes(args, pool.num_threads()));
        Linear(args, pool, pool.num_threads());
    }
    pool.Run(SiluMul, ActivationArgs{want.data(), both.data(), num_rows, half, n, 0.0F}, 2);
    CheckTrue(got == want, "linear: gated as silu_mul has it");
}

// The bits of a row among many and alone, whichever way sums for many are made. Rows of the largest
// whole numbers, of either sign and of both, have sums that wrap on the way; the first block of 16
// columns has the largest weights as well.
void TestRowAmongMany(WeightFormat format, std::int64_t k) {
    constexpr std::int64_t kNumRows = 17, kN = 33;
    std::vector<std::uint8_t> weight(static_cast<std::size_t>(kN * RowBytes(format, k)));
    Fill(format, weight, kN, k);
    const BlockLayout layout = LayoutOf(format);
    const std::uint8_t largest = format == WeightFormat::kMxfp4 ? 0x77 : 0xFF;
    std::fill(weight.begin() + kTileRows * layout.sections[0].Bytes(),
              weight.begin() + kTileRows * layout.Bytes(), largest);
    std::vector<float> x = RandomFloats(static_cast<std::size_t>(kNumRows * k), 5);
    for (std::int64_t i = 0; i < 5 * k; ++i) {
        const std::int64_t row = i / k;
        const bool is_negative = row == 1 || (row == 2 && i % 2 == 1) || (row == 3 && i % 4 > 1) ||
                                 (row == 4 && i % 8 > 3);
        x[static_cast<std::size_t>(i)] = is_negative ? -3.0F : 3.0F;
    }
    const auto product = [&](std::int64_t first, std::int64_t num_rows) {
        std::vector<float> y(static_cast<std::size_t>(num_rows * kN), NAN);
        LinearArgs args{
            y.data(), x.data() + first * k, weight.data(), nullptr, num_rows, kN, k, k, format,
            nullptr};
        args.rounds_to_bytes = rounds_to_bytes;
        args.scratch = ThreadScratch(LinearScratchBytes(args, 1));
        LinearAlone(args);
        return y;
    };
    std::vector<float> alone;
    for (std::int64_t row = 0; row < kNumRows; ++row) {
        const std::vector<float> y = product(row, 1);
        alone.insert(alone.end(), y.begin(), y.end());
    }
    const bool adds = AddsBesideProducts();
    for (const bool is_crossed : {false, true}) {
        SetAddsBesideProducts(is_crossed);
        for (const std::int64_t num_rows : {3, 15, 17}) {
            const std::vector<float> y = product(0, num_rows);
            CheckTrue(std::equal(y.begin(), y.end(), alone.begin()), "linear: a row's bits");
        }
    }
    SetAddsBesideProducts(adds);
}

// Ones beside 1 + 1/1024 are as large as it in bytes, and smaller in 15 bits.
void TestBits(WeightFormat format, bool is_byte) {
    const std::int64_t k = LayoutOf(format).num_elements, n = kTileRows;
    std::vector<std::uint8_t> weight(static_cast<std::size_t>(n * RowBytes(format, k)));
    Fill(format, weight, n, k);
    const float larger = 1.0F + 1.0F / 1024;
    std::vector<float> x(static_cast<std::size_t>(2 * k), 1.0F), y(2 * kTileRows, NAN);
    for (std::int64_t i = k; i < 2 * k; i += 32) x[static_cast<std::size_t>(i)] = larger;
    LinearArgs args{y.data(), x.data(), weight.data(), nullptr, 2, n, k, k, format, nullptr};
    args.rounds_to_bytes = rounds_to_bytes;
    args.scratch = ThreadScratch(LinearScratchBytes(args, 1));
    LinearAlone(args);
    bool is_scaled = true;
    for (std::size_t c = 0; c < kTileRows; ++c) {
        is_scaled &= std::fabs(y[kTileRows + c] - larger * y[c]) <= 1e-5F * std::fabs(y[c]);
    }
    CheckTrue(is_scaled == is_byte, "linear: the bits of activations");
}

void TestAll() {
    for (const std::int64_t rows : {1, 13, 21}) {
        TestGated(WeightFormat::kQ4_1, rows, 48, 64);
        TestGated(WeightFormat::kQ8_0, rows, 16, 2080);
        TestGated(WeightFormat::kQ6K, rows, 32, 256);
    }
    for (int f = 0; f <= static_cast<int>(WeightFormat::kQ6K); ++f) {
        const auto format = static_cast<WeightFormat>(f);
        const std::int64_t block = LayoutOf(format).num_elements;
        TestProduct(format, 1, 16, 2 * block);
        TestProduct(format, 19, 37, 3 * block);
        if (block <= 32) TestProduct(format, 33, 5, 96);
        // k in two panels
        if (block == 32) TestProduct(format, 17, 33, 2080);
        if (block == 256) TestProduct(format, 17, 33, 2304);
        if (block == 1) TestProduct(format, 7, 9, 33);
        if (format == WeightFormat::kQ4_1) TestProduct(format, 403, 70, 64);  // rows in spans
        if (IsDense(format)) continue;
        TestRowAmongMany(format, 2 * block);
        TestBits(format, rounds_to_bytes &&
                             (format == WeightFormat::kQ8_0 || format >= WeightFormat::kQ4K));
    }
}

}  // namespace
}  // namespace tokenlight::cpu

int main() {
    tokenlight::cpu::PoisonScratch(true);
    for (const int num_threads : {1, 3}) {
        tokenlight::cpu::ThreadPool::Get().SetNumThreads(num_threads);
        for (const bool rounds : {false, true}) {
            tokenlight::cpu::rounds_to_bytes = rounds;
            tokenlight::cpu::OnEachIsa(tokenlight::cpu::TestAll);
        }
    }
    return 0;
}

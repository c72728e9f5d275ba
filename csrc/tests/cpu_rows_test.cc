// SPDX-License-Identifier: Apache-2.0
// Ops of one row at a time, at widths that end inside a register.
#include "cpu/activation.h"
#include "cpu/half.h"
#include "cpu/rms_norm.h"
#include "cpu/rope.h"
#include "cpu/sample.h"
#include "cpu/scratch.h"
#include "tests/cpu_check.h"

namespace tokenlight::cpu {
namespace {

void TestRmsNorm(std::int64_t rows, std::int64_t width) {
    const auto x = RandomFloats(static_cast<std::size_t>(rows * width), 1);
    const auto weight = RandomFloats(static_cast<std::size_t>(width), 2);
    std::vector<float> out(x.size(), NAN);
    ThreadPool::Get().Run(
        RmsNorm, RmsNormArgs{out.data(), x.data(), weight.data(), rows, 1, width, width, 0, 1e-5F},
        2);
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t row =
            i / static_cast<std::size_t>(width) * static_cast<std::size_t>(width);
        double squares = 0;
        for (std::size_t j = 0; j < static_cast<std::size_t>(width); ++j)
            squares += double{x[row + j]} * x[row + j];
        const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
        CheckClose(out[i], x[i] * scale * weight[i - row], 1e-5, "rms_norm", i);
    }
}

void TestSilu(std::int64_t rows, std::int64_t width) {
    const auto x = RandomFloats(static_cast<std::size_t>(rows * 2 * width), 3);
    std::vector<float> out(static_cast<std::size_t>(rows * width), NAN);
    ThreadPool::Get().Run(SiluMul, ActivationArgs{out.data(), x.data(), rows, width, 2 * width, 0},
                          2);
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t w = static_cast<std::size_t>(width), at = i / w * 2 * w + i % w;
        CheckClose(out[i], x[at] / (1 + std::exp(-double{x[at]})) * x[at + w], 1e-5, "silu_mul", i);
    }
}

void TestRope(std::int64_t rotated) {
    constexpr std::int64_t kTokens = 3, kDim = 22;
    auto q = RandomFloats(kTokens * 2 * kDim, 4), k = RandomFloats(kTokens * kDim, 5);
    const auto before = k;
    const auto angles = RandomFloats(static_cast<std::size_t>(kTokens * rotated), 6);
    ThreadPool::Get().Run(
        Rope,
        RopeArgs{q.data(), k.data(), angles.data(), kTokens, 2, 1, kDim, rotated, 2 * kDim, kDim},
        2);
    for (std::size_t i = 0; i < k.size(); ++i) {
        const auto dim = static_cast<std::int64_t>(i) % kDim, half = rotated / 2;
        const float* cos = angles.data() + static_cast<std::int64_t>(i) / kDim * rotated;
        double want = before[i];
        if (dim < half) {
            want = want * cos[dim] - before[i + static_cast<std::size_t>(half)] * cos[half + dim];
        } else if (dim < rotated) {
            want = want * cos[dim - half] + before[i - static_cast<std::size_t>(half)] * cos[dim];
        }
        CheckClose(k[i], want, 1e-5, "rope", i);
    }
}

// Logits whose order is known: token i is the (i * 7 mod n)-th best.
void TestSample(std::int64_t vocabulary) {
    const auto n = static_cast<std::size_t>(vocabulary);
    std::vector<float> logits(n);
    for (std::size_t i = 0; i < n; ++i) logits[i] = -0.1F * static_cast<float>(i * 7 % n);
    const std::vector<float> temperature{0, 1, 1, 1, 2}, top_p{1, 1, 1, 0.3F, 0.9F},
        min_p{0, 0, 0, 0, 0.5F};
    const std::vector<std::int32_t> top_k{0, 1, 5, 0, 50}, positions{1, 2, 3, 4, 5};
    const std::vector<std::int64_t> seeds{1, 2, 3, 4, 5};
    std::vector<std::int32_t> ids(5, -1);
    std::vector<float> rows;
    for (int r = 0; r < 5; ++r) rows.insert(rows.end(), logits.begin(), logits.end());
    SampleArgs args{ids.data(),   rows.data(),      temperature.data(),
                    top_k.data(), top_p.data(),     min_p.data(),
                    seeds.data(), positions.data(), 5,
                    vocabulary,   vocabulary,       nullptr};
    args.scratch = ThreadScratch(SampleScratchBytes(args, ThreadPool::Get().num_threads()));
    ThreadPool::Get().Run(Sample, args, 2);
    for (const std::int32_t id : ids)
        CheckTrue(id >= 0 && id < vocabulary, "an id of the vocabulary");
    CheckTrue(ids[0] == 0 && ids[1] == 0, "the best token");
    CheckTrue(ids[2] * 7 % vocabulary < 5, "one of the best five");
}

void TestHalves() {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const Half half{static_cast<std::uint16_t>(bits)};
        const float value = ToFloat(half);
        if (std::isnan(value)) continue;
        CheckTrue(ToHalf(value).bits == half.bits, "a half survives float");
        if (std::isinf(value)) continue;
        const int exponent = std::max(1, static_cast<int>(bits >> 10 & 31));
        const double want =
            std::ldexp((bits & 0x7C00) != 0 ? 1024.0 + (bits & 1023) : bits & 1023, exponent - 25);
        CheckTrue(value == ((bits & 0x8000) != 0 ? -want : want), "a half's value");
    }
    CheckTrue(ToHalf(65519.0F).bits == 0x7BFF && ToHalf(65520.0F).bits == 0x7C00,
              "halves overflow by rounding");
    CheckTrue(ToHalf(0x1p-25F).bits == 0 && ToHalf(0x1.8p-25F).bits == 1,
              "halves underflow to even");
    CheckTrue(ToBf16(1.00390625F).bits == 0x3F80 && ToBf16(1.01171875F).bits == 0x3F82,
              "bfloat16 rounds to even");
    CheckTrue(ToBf16(NAN).bits == 0x7FC0, "bfloat16 keeps NaN");
}

void TestAll() {
    for (const std::int64_t width : {1, 15, 16, 17, 100}) {
        TestRmsNorm(3, width);
        TestSilu(3, width);
    }
    for (const std::int64_t rotated : {2, 10, 22}) TestRope(rotated);
    for (const std::int64_t vocabulary : {8, 16, 1009}) TestSample(vocabulary);
}

}  // namespace
}  // namespace tokenlight::cpu

int main() {
    tokenlight::cpu::PoisonScratch(true);
    tokenlight::cpu::TestHalves();
    tokenlight::cpu::OnEachIsa(tokenlight::cpu::TestAll);
    return 0;
}

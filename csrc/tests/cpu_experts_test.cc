// SPDX-License-Identifier: Apache-2.0
// Experts, and what latent attention has of its own, at sizes that end inside a tile or a register.
#include <algorithm>
#include <array>

#include "cpu/head_linear.h"
#include "cpu/latent.h"
#include "cpu/moe.h"
#include "cpu/route.h"
#include "cpu/scratch.h"
#include "tests/cpu_check.h"

namespace tokenlight::cpu {
namespace {

double Dot(const float* a, const float* b, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += double{a[i]} * b[i];
    return sum;
}

std::size_t Size(std::int64_t count) { return static_cast<std::size_t>(count); }

struct MoeShape {
    std::int64_t num_tokens, num_experts, per_token, dim, inner, first_expert, num_here;
};

// Against each expert by itself, in double.
void TestMoe(const MoeShape& s) {
    constexpr float kLimit = 0.8F, kAlpha = 1.7F, kShift = 1.0F;
    const auto x = RandomFloats(Size(s.num_tokens * s.dim), 1);
    const auto routing = RandomFloats(Size(s.num_tokens * s.per_token), 2);
    const auto gate_up = RandomFloats(Size(s.num_here * 2 * s.inner * s.dim), 3);
    const auto down = RandomFloats(Size(s.num_here * s.dim * s.inner), 4);
    const auto gate_up_bias = RandomFloats(Size(s.num_here * 2 * s.inner), 5);
    const auto down_bias = RandomFloats(Size(s.num_here * s.dim), 6);
    std::vector<std::int32_t> experts(routing.size());
    for (std::size_t i = 0; i < experts.size(); ++i) {
        experts[i] = static_cast<std::int32_t>((i * 7 + i / 3) % Size(s.num_experts));
    }
    std::vector<float> out(Size(s.num_tokens * s.dim), NAN);
    MoeInPasses({out.data(),
                 x.data(),
                 experts.data(),
                 routing.data(),
                 gate_up.data(),
                 down.data(),
                 gate_up_bias.data(),
                 down_bias.data(),
                 s.num_tokens,
                 s.dim,
                 s.inner,
                 s.num_here,
                 s.per_token,
                 s.first_expert,
                 s.dim,
                 WeightFormat::kF32,
                 WeightFormat::kF32,
                 kLimit,
                 kAlpha,
                 kShift},
                ThreadPool::Get());
    std::vector<float> inner(Size(s.inner));
    for (std::int64_t t = 0; t < s.num_tokens; ++t) {
        std::vector<double> want(Size(s.dim), 0);
        for (std::int64_t c = t * s.per_token; c < (t + 1) * s.per_token; ++c) {
            const std::int64_t e = experts[Size(c)] - s.first_expert;
            if (e < 0 || e >= s.num_here) continue;
            const float* row = gate_up.data() + e * 2 * s.inner * s.dim;
            const float* bias = gate_up_bias.data() + e * 2 * s.inner;
            for (std::int64_t f = 0; f < s.inner; ++f) {
                const float* token = x.data() + t * s.dim;
                double gate = Dot(row + f * s.dim, token, s.dim) + bias[f];
                double up = Dot(row + (s.inner + f) * s.dim, token, s.dim) + bias[s.inner + f];
                gate = std::min(gate, double{kLimit});
                up = std::clamp(up, -double{kLimit}, double{kLimit});
                inner[Size(f)] =
                    static_cast<float>(gate / (1 + std::exp(-kAlpha * gate)) * (up + kShift));
            }
            for (std::int64_t d = 0; d < s.dim; ++d) {
                const float* weight = down.data() + (e * s.dim + d) * s.inner;
                want[Size(d)] += routing[Size(c)] * (Dot(weight, inner.data(), s.inner) +
                                                     down_bias[Size(e * s.dim + d)]);
            }
        }
        for (std::int64_t d = 0; d < s.dim; ++d) {
            CheckClose(out[Size(t * s.dim + d)], want[Size(d)], 1e-4, "moe", Size(t * s.dim + d));
        }
    }
}

void TestRoute() {
    constexpr std::int64_t kTokens = 3, kExperts = 20, kTopK = 4;
    auto logits = RandomFloats(Size(kTokens * kExperts), 7);
    std::fill_n(logits.begin() + kExperts, kExperts, NAN);      // chooses something, once each
    std::fill_n(logits.begin() + 2 * kExperts, kExperts, 1.F);  // equals: the first
    const auto bias = std::vector<float>(Size(kExperts), 0);
    std::vector<std::int32_t> experts(Size(kTokens * kTopK), -1);
    std::vector<float> weights(experts.size(), NAN);
    RouteArgs args{experts.data(),
                   weights.data(),
                   logits.data(),
                   bias.data(),
                   kTokens,
                   kExperts,
                   kExperts,
                   kTopK,
                   5,
                   2,
                   2,
                   true,
                   true,
                   2.5F,
                   nullptr};
    ThreadPool& pool = ThreadPool::Get();
    args.scratch = ThreadScratch(RouteScratchBytes(args, pool.num_threads()));
    pool.Run(Route, args, pool.num_threads());
    for (std::int64_t t = 0; t < kTokens; ++t) {
        const std::int32_t* chosen = experts.data() + t * kTopK;
        std::array<std::int32_t, kTopK> sorted;
        std::copy_n(chosen, kTopK, sorted.begin());
        std::sort(sorted.begin(), sorted.end());
        CheckTrue(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "once each");
        CheckTrue(sorted.front() >= 0 && sorted.back() < kExperts, "experts there are");
    }
    CheckTrue(experts[Size(2 * kTopK)] == 0 && experts[Size(2 * kTopK + 3)] == 3,
              "equals in order");
    double sum = 0;
    for (std::int64_t i = 0; i < kTopK; ++i) sum += weights[Size(i)];
    CheckClose(sum, 2.5, 1e-5, "route", 0);
}

void TestHeadLinear(std::int64_t rows, std::int64_t heads, std::int64_t n, std::int64_t k) {
    const auto x = RandomFloats(Size(rows * heads * k), 8);
    const auto weight = RandomFloats(Size(heads * n * k), 9);
    std::vector<float> y(Size(rows * heads * n), NAN);
    HeadLinearArgs args{y.data(), x.data(),  weight.data(),      rows,   heads, n,
                        k,        heads * k, WeightFormat::kF32, nullptr};
    ThreadPool& pool = ThreadPool::Get();
    args.scratch = ThreadScratch(HeadLinearScratchBytes(args, pool.num_threads()));
    pool.Run(HeadLinear, args, pool.num_threads());
    for (std::int64_t i = 0; i < rows * heads * n; ++i) {
        const std::int64_t row = i / n, head = row % heads;
        const double want = Dot(x.data() + row * k, weight.data() + (head * n + i % n) * k, k);
        CheckClose(y[Size(i)], want, 1e-4, "head_linear", Size(i));
    }
}

void TestWriteLatent() {
    constexpr std::int64_t kLatent = 18, kRotated = 6, kWidth = kLatent + kRotated;
    const std::vector<std::int32_t> starts{0, 3}, slots{0}, table{1, 0}, positions{1, 2, 3};
    const PagedBatch batch{starts.data(), table.data(), slots.data(), 1, 1, 2, 2, 3, 2, 2};
    const auto latent = RandomFloats(3 * kLatent, 10), rotated = RandomFloats(3 * kRotated, 11);
    std::vector<float> cache(Size(2 * 2 * kWidth), -1);
    const WriteLatentArgs args{latent.data(), rotated.data(),  cache.data(), positions.data(),
                               batch,         FloatType::kF32, kLatent,      kRotated,
                               kLatent,       kRotated};
    CheckWriteLatent(args);
    ThreadPool::Get().Run(WriteLatent, args, 2);
    for (std::int64_t t = 0; t < 3; ++t) {
        const std::int64_t position = positions[Size(t)];
        const float* row = cache.data() + (table[Size(position / 2)] * 2 + position % 2) * kWidth;
        CheckTrue(std::equal(row, row + kLatent, latent.data() + t * kLatent), "latents");
        CheckTrue(std::equal(row + kLatent, row + kWidth, rotated.data() + t * kRotated), "keys");
    }
    CheckTrue(cache[Size(2 * kWidth)] == -1, "a row that nobody wrote");
}

}  // namespace
}  // namespace tokenlight::cpu

int main() {
    using namespace tokenlight::cpu;
    OnEachIsa([] {
        TestMoe({1, 4, 2, 20, 32, 0, 4});
        TestMoe({70, 2, 2, 33, 48, 0, 2});
        TestMoe({9, 5, 3, 17, 7, 2, 2});
        TestMoe({0, 3, 1, 16, 16, 0, 3});
        TestMoe({5, 8, 2, 16, 16, 6, 1});
        TestRoute();
        TestHeadLinear(1, 3, 17, 20);
        TestHeadLinear(67, 2, 16, 9);
        TestWriteLatent();
    });
}

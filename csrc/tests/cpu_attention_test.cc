// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention.h"
#include "cpu/scratch.h"
#include "cpu/write_kv.h"
#include "tests/cpu_check.h"

namespace tokenlight::cpu {
namespace {

struct Shape {
    std::vector<std::int32_t> num_queries;
    std::vector<std::int32_t> kv_lens;
    std::int64_t num_heads;
    std::int64_t num_kv_heads;
    std::int64_t head_dim;
    std::int64_t block_tokens;
    std::int64_t window;
    float softcap;
};

struct Fixture {
    Shape shape;
    std::vector<std::int32_t> query_starts{0};
    std::vector<std::int32_t> slots;
    std::vector<std::int32_t> block_table;
    std::vector<float> q;
    std::vector<float> k_cache;
    std::vector<float> v_cache;
    std::vector<float> out;
    PagedBatch batch{};

    explicit Fixture(const Shape& s) : shape(s) {
        std::int64_t columns = 0, num_blocks = 0;
        for (std::size_t r = 0; r < s.kv_lens.size(); ++r) {
            query_starts.push_back(query_starts.back() + s.num_queries[r]);
            slots.push_back(static_cast<std::int32_t>(s.kv_lens.size() - 1 - r));
            const std::int64_t blocks = (s.kv_lens[r] + s.block_tokens - 1) / s.block_tokens;
            columns = std::max(columns, blocks);
            num_blocks += blocks;
        }
        block_table.assign(slots.size() * static_cast<std::size_t>(columns), -1);
        std::int32_t next = 0;
        for (std::size_t r = 0; r < slots.size(); ++r) {
            for (std::int64_t c = 0; c * s.block_tokens < s.kv_lens[r]; ++c) {
                block_table[static_cast<std::size_t>(slots[r] * columns + c)] = next++;
            }
        }
        const auto cache =
            static_cast<std::size_t>(num_blocks * s.num_kv_heads * s.block_tokens * s.head_dim);
        q = RandomFloats(static_cast<std::size_t>(query_starts.back() * s.num_heads * s.head_dim),
                         1);
        k_cache = RandomFloats(cache, 2);
        v_cache = RandomFloats(cache, 3);
        out.assign(q.size(), NAN);
        batch = {query_starts.data(),
                 block_table.data(),
                 slots.data(),
                 static_cast<std::int64_t>(slots.size()),
                 static_cast<std::int64_t>(slots.size()),
                 columns,
                 columns,
                 query_starts.back(),
                 num_blocks,
                 s.block_tokens};
    }

    AttentionArgs Args() {
        return {out.data(),
                q.data(),
                k_cache.data(),
                v_cache.data(),
                shape.kv_lens.data(),
                nullptr,
                batch,
                FloatType::kF32,
                shape.num_heads,
                shape.num_kv_heads,
                shape.head_dim,
                shape.num_heads * shape.head_dim,
                shape.window,
                0.25F,
                shape.softcap};
    }

    const float* Row(const std::vector<float>& cache, std::int64_t request, std::int64_t head,
                     std::int64_t position) const {
        const std::int64_t block = batch.Row(request)[position / shape.block_tokens];
        return cache.data() + ((block * shape.num_kv_heads + head) * shape.block_tokens +
                               position % shape.block_tokens) *
                                  shape.head_dim;
    }

    // In double, straight from the definition.
    std::vector<double> Want(std::int64_t request, std::int64_t query, std::int64_t head) const {
        const std::int64_t position = shape.kv_lens[static_cast<std::size_t>(request)] -
                                      shape.num_queries[static_cast<std::size_t>(request)] + query;
        const std::int64_t low =
            shape.window == 0 ? 0 : std::max<std::int64_t>(0, position - shape.window + 1);
        const std::int64_t kv_head = head / (shape.num_heads / shape.num_kv_heads);
        const float* q_row =
            q.data() +
            ((query_starts[static_cast<std::size_t>(request)] + query) * shape.num_heads + head) *
                shape.head_dim;
        std::vector<double> sums(static_cast<std::size_t>(shape.head_dim));
        double total = 0;
        for (std::int64_t j = low; j <= position; ++j) {
            const float* k = Row(k_cache, request, kv_head, j);
            const float* v = Row(v_cache, request, kv_head, j);
            double score = 0;
            for (std::int64_t i = 0; i < shape.head_dim; ++i) score += double{q_row[i]} * k[i];
            score *= 0.25;
            if (shape.softcap != 0) score = shape.softcap * std::tanh(score / shape.softcap);
            const double weight = std::exp(score);
            total += weight;
            for (std::int64_t i = 0; i < shape.head_dim; ++i)
                sums[static_cast<std::size_t>(i)] += weight * v[i];
        }
        for (double& sum : sums) sum /= total;
        return sums;
    }
};

void TestShape(const Shape& shape) {
    Fixture f(shape);
    const AttentionArgs args = f.Args();
    ThreadPool& pool = ThreadPool::Get();
    const AttentionPlan plan = AttentionPlan::Make(args, pool.num_threads());
    void* scratch = ThreadScratch(AttentionScratchBytes(args, plan, pool.num_threads()));
    PagedAttention(PlannedAttention(args, plan, pool.num_threads(), scratch), pool,
                   pool.num_threads());
    std::size_t at = 0;
    for (std::int64_t r = 0; r < f.batch.num_requests; ++r) {
        for (std::int64_t query = 0; query < args.NumQueries(r); ++query) {
            for (std::int64_t head = 0; head < shape.num_heads; ++head) {
                for (const double want : f.Want(r, query, head)) {
                    CheckClose(f.out[at], want, 1e-4, "paged attention", at);
                    ++at;
                }
            }
        }
    }
    CheckTrue(at == f.out.size(), "every output compared");
}

void TestRefusals() {
    Fixture f({{2}, {5}, 2, 1, 8, 4, 0, 0});
    f.block_table[1] = static_cast<std::int32_t>(f.batch.num_blocks);
    bool refused = false;
    try {
        AttentionPlan::Make(f.Args(), 1);
    } catch (const std::out_of_range&) {
        refused = true;
    }
    CheckTrue(refused, "a block outside the pool is refused");
}

void TestAll() {
    TestShape({{1}, {1}, 2, 1, 8, 4, 0, 0});
    TestShape({{1, 7, 3}, {300, 7, 33}, 6, 2, 24, 16, 0, 0});
    TestShape({{1}, {700}, 3, 1, 16, 8, 0, 0});
    TestShape({{5, 1}, {290, 600}, 2, 2, 20, 4, 37, 3.0F});
    TestShape({{70}, {70}, 4, 1, 16, 1, 0, 0});
    TestRefusals();
}

}  // namespace
}  // namespace tokenlight::cpu

int main() {
    tokenlight::cpu::PoisonScratch(true);
    for (const int num_threads : {1, 2, 4}) {
        tokenlight::cpu::ThreadPool::Get().SetNumThreads(num_threads);
        tokenlight::cpu::OnEachIsa(tokenlight::cpu::TestAll);
    }
    return 0;
}

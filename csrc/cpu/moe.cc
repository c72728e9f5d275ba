// SPDX-License-Identifier: Apache-2.0
#include "cpu/moe.h"

#include <algorithm>
#include <cstring>

#include "cpu/linear.h"
#include "cpu/scratch.h"

#define TL_BODY "cpu/moe_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {
namespace {

// Rows that share a pass over an expert's weights.
constexpr std::int64_t kChunkRows = 64;
// Tokens that go through the experts together.
constexpr std::int64_t kPassTokens = 1024;
// Items per worker that keep all of them busy to the end.
constexpr std::int64_t kItemsPerWorker = 4;
// Columns below which an item is not worth its start.
constexpr std::int64_t kMinWidth = 64;

std::int64_t Aligned(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Gate and up can be cut into slices of columns where up starts with a tile.
bool HasSlices(const MoeArgs& a) { return a.inner % kTileRows == 0; }

std::int64_t SliceWidth(std::int64_t columns, std::int64_t num_slices) {
    const std::int64_t width = (columns + num_slices - 1) / num_slices;
    return std::min(columns, (width + kTileRows - 1) / kTileRows * kTileRows);
}

LinearArgs GateOrUp(const MoeArgs& a, const MoeChunk& chunk, std::int64_t row, std::int64_t n) {
    const std::int64_t at = chunk.expert * 2 * a.inner + row;
    return {nullptr,
            nullptr,
            static_cast<const std::byte*>(a.gate_up) + at * RowBytes(a.gate_up_format, a.dim),
            a.gate_up_bias == nullptr ? nullptr : a.gate_up_bias + at,
            chunk.count,
            n,
            a.dim,
            a.dim,
            a.gate_up_format,
            nullptr};
}

LinearArgs Down(const MoeArgs& a, const MoeChunk& chunk, std::int64_t row, std::int64_t n) {
    const std::int64_t at = chunk.expert * a.dim + row;
    return {nullptr,
            nullptr,
            static_cast<const std::byte*>(a.down) + at * RowBytes(a.down_format, a.inner),
            a.down_bias == nullptr ? nullptr : a.down_bias + at,
            chunk.count,
            n,
            a.inner,
            a.inner,
            a.down_format,
            nullptr};
}

// Memory of a call: what all workers share, then each one's own.
struct Buffers {
    std::int64_t inner;    // float [rows, inner]: what goes into down
    std::int64_t outer;    // float [rows, dim]: what comes out, times its weight
    std::int64_t workers;  // each as follows
    std::int64_t x = 0;    // float [chunk rows, dim]
    std::int64_t product;  // float [chunk rows, the widest product]
    std::int64_t linear;   // of LinearAlone
    std::int64_t worker_bytes;

    Buffers(const MoeArgs& a, const MoePlan& plan) {
        constexpr std::int64_t kFloat = sizeof(float);
        const auto rows = static_cast<std::int64_t>(plan.pairs.size());
        inner = 0;
        outer = inner + Aligned(rows * a.inner * kFloat);
        workers = outer + Aligned(rows * a.dim * kFloat);
        product = x + Aligned(kChunkRows * a.dim * kFloat);
        const std::int64_t widest = std::max(2 * plan.inner_width, plan.dim_width);
        linear = product + Aligned(kChunkRows * widest * kFloat);
        // A product with fewer rows may need more: each count is asked.
        std::size_t most = 0;
        for (const MoeChunk& chunk : plan.chunks) {
            const std::int64_t n = HasSlices(a) ? plan.inner_width : 2 * a.inner;
            most = std::max(most, LinearScratchBytes(GateOrUp(a, chunk, 0, n), 1));
            most = std::max(most, LinearScratchBytes(Down(a, chunk, 0, plan.dim_width), 1));
            // The last slice may have rows beyond the last full tile.
            const std::int64_t last = a.dim - (plan.num_dim_slices - 1) * plan.dim_width;
            most = std::max(most, LinearScratchBytes(Down(a, chunk, 0, last), 1));
        }
        worker_bytes = linear + Aligned(static_cast<std::int64_t>(most));
    }
};

struct MoeCall {
    const MoeArgs& args;
    const MoePlan& plan;
    const Buffers& buffers;
    std::byte* scratch;

    float* Inner() const { return reinterpret_cast<float*>(scratch + buffers.inner); }
    float* Outer() const { return reinterpret_cast<float*>(scratch + buffers.outer); }
    std::byte* Own(const Worker& worker) const {
        return scratch + buffers.workers + worker.index() * buffers.worker_bytes;
    }
};

void GateItem(const MoeCall& call, const MoeChunk& chunk, std::int64_t column, std::byte* own) {
    const MoeArgs& a = call.args;
    const std::int64_t width = std::min(call.plan.inner_width, a.inner - column);
    auto* x = reinterpret_cast<float*>(own + call.buffers.x);
    for (std::int64_t r = 0; r < chunk.count; ++r) {
        const std::int64_t pair = call.plan.pairs[static_cast<std::size_t>(chunk.first + r)];
        std::memcpy(x + r * a.dim, a.x + pair / a.per_token * a.x_stride,
                    static_cast<std::size_t>(a.dim) * sizeof(float));
    }
    auto* gate = reinterpret_cast<float*>(own + call.buffers.product);
    const auto multiply = [&](LinearArgs linear, float* y) {
        linear.y = y;
        linear.x = x;
        linear.scratch = own + call.buffers.linear;
        LinearAlone(linear);
    };
    const float* up = gate + (HasSlices(a) ? chunk.count * width : a.inner);
    if (HasSlices(a)) {
        multiply(GateOrUp(a, chunk, column, width), gate);
        multiply(GateOrUp(a, chunk, a.inner + column, width), gate + chunk.count * width);
    } else {
        multiply(GateOrUp(a, chunk, 0, 2 * a.inner), gate);
    }
    const std::int64_t stride = HasSlices(a) ? width : 2 * a.inner;
    for (std::int64_t r = 0; r < chunk.count; ++r) {
        float* out = call.Inner() + (chunk.first + r) * a.inner + column;
        TL_DISPATCH(GateRow)(a, gate + r * stride, up + r * stride, width, out);
    }
}

void GateItems(const MoeCall& call, Worker& worker) {
    const auto num_chunks = static_cast<std::int64_t>(call.plan.chunks.size());
    const std::int64_t num_items = num_chunks * call.plan.num_inner_slices;
    for (std::int64_t i = worker.Next(); i < num_items; i = worker.Next()) {
        const auto chunk = static_cast<std::size_t>(i / call.plan.num_inner_slices);
        const std::int64_t column = i % call.plan.num_inner_slices * call.plan.inner_width;
        GateItem(call, call.plan.chunks[chunk], column, call.Own(worker));
    }
}

void DownItem(const MoeCall& call, const MoeChunk& chunk, std::int64_t column, std::byte* own) {
    const MoeArgs& a = call.args;
    const std::int64_t width = std::min(call.plan.dim_width, a.dim - column);
    LinearArgs linear = Down(a, chunk, column, width);
    linear.y = reinterpret_cast<float*>(own + call.buffers.product);
    linear.x = call.Inner() + chunk.first * a.inner;
    linear.scratch = own + call.buffers.linear;
    LinearAlone(linear);
    for (std::int64_t r = 0; r < chunk.count; ++r) {
        const std::int64_t row = chunk.first + r;
        const float weight = a.routing[call.plan.pairs[static_cast<std::size_t>(row)]];
        float* out = call.Outer() + row * a.dim + column;
        TL_DISPATCH(ScaleRow)(linear.y + r * width, weight, width, out);
    }
}

void DownItems(const MoeCall& call, Worker& worker) {
    const auto num_chunks = static_cast<std::int64_t>(call.plan.chunks.size());
    const std::int64_t num_items = num_chunks * call.plan.num_dim_slices;
    for (std::int64_t i = worker.Next(); i < num_items; i = worker.Next()) {
        const auto chunk = static_cast<std::size_t>(i / call.plan.num_dim_slices);
        const std::int64_t column = i % call.plan.num_dim_slices * call.plan.dim_width;
        DownItem(call, call.plan.chunks[chunk], column, call.Own(worker));
    }
}

void SumTokens(const MoeCall& call, Worker& worker) {
    for (std::int64_t t = worker.Next(); t < call.args.num_tokens; t = worker.Next()) {
        TL_DISPATCH(SumRows)(call.args, call.plan.row_of.data(), call.Outer(), t);
    }
}

}  // namespace

MoePlan MoePlan::Make(const MoeArgs& args, int num_workers) {
    const auto num_experts = static_cast<std::size_t>(args.num_experts);
    const auto num_pairs = static_cast<std::size_t>(args.num_tokens * args.per_token);
    const auto is_here = [&](std::size_t pair) {
        const std::int64_t expert = args.experts[pair] - args.first_expert;
        return 0 <= expert && expert < args.num_experts;
    };
    std::vector<std::int32_t> next(num_experts + 1, 0);  // each expert's next row
    for (std::size_t pair = 0; pair < num_pairs; ++pair) {
        if (is_here(pair)) {
            ++next[static_cast<std::size_t>(args.experts[pair] - args.first_expert) + 1];
        }
    }
    MoePlan plan;
    for (std::size_t e = 0; e < num_experts; ++e) {
        const std::int64_t count = next[e + 1];
        next[e + 1] += next[e];
        for (std::int64_t first = 0; first < count; first += kChunkRows) {
            plan.chunks.push_back({static_cast<std::int64_t>(e), next[e] + first,
                                   std::min(kChunkRows, count - first)});
        }
    }
    plan.pairs.resize(static_cast<std::size_t>(next[num_experts]));
    plan.row_of.assign(num_pairs, -1);
    for (std::size_t pair = 0; pair < num_pairs; ++pair) {
        if (!is_here(pair)) continue;
        const auto expert = static_cast<std::size_t>(args.experts[pair] - args.first_expert);
        plan.row_of[pair] = next[expert]++;
        plan.pairs[static_cast<std::size_t>(plan.row_of[pair])] = static_cast<std::int32_t>(pair);
    }
    const auto num_chunks =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(plan.chunks.size()));
    const std::int64_t wanted = (kItemsPerWorker * num_workers + num_chunks - 1) / num_chunks;
    const auto slices = [&](std::int64_t columns) {
        return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, columns / kMinWidth));
    };
    plan.inner_width = HasSlices(args) ? SliceWidth(args.inner, slices(args.inner)) : args.inner;
    plan.dim_width = SliceWidth(args.dim, slices(args.dim));
    plan.num_inner_slices = (args.inner + plan.inner_width - 1) / plan.inner_width;
    plan.num_dim_slices = (args.dim + plan.dim_width - 1) / plan.dim_width;
    return plan;
}

std::size_t MoeScratchBytes(const MoeArgs& args, const MoePlan& plan, int num_workers) {
    const Buffers buffers(args, plan);
    return static_cast<std::size_t>(buffers.workers + num_workers * buffers.worker_bytes);
}

void Moe(const MoeArgs& args, const MoePlan& plan, ThreadPool& pool, int num_workers,
         void* scratch) {
    const Buffers buffers(args, plan);
    const MoeCall call{args, plan, buffers, static_cast<std::byte*>(scratch)};
    pool.Run(GateItems, call, num_workers);
    pool.Run(DownItems, call, num_workers);
    pool.Run(SumTokens, call, args.num_tokens > 1 ? num_workers : 1);
}

void MoeInPasses(const MoeArgs& args, ThreadPool& pool) {
    const int num_workers = pool.num_threads();
    for (std::int64_t first = 0; first < args.num_tokens; first += kPassTokens) {
        MoeArgs pass = args;
        pass.num_tokens = std::min(kPassTokens, args.num_tokens - first);
        pass.out += first * args.dim;
        pass.x += first * args.x_stride;
        pass.experts += first * args.per_token;
        pass.routing += first * args.per_token;
        const MoePlan plan = MoePlan::Make(pass, num_workers);
        Moe(pass, plan, pool, num_workers, ThreadScratch(MoeScratchBytes(pass, plan, num_workers)));
    }
}

}  // namespace tokenlight::cpu

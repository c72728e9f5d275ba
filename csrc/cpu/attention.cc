// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cpu/attention_scratch.h"

#define TL_BODY "cpu/attention_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {
namespace {

// Rows (queries * heads per group) that share a conversion of keys and values: more turn fewer
// keys, and cost memory alone.
constexpr std::int64_t kBlockRows = 384;
// Items per worker that keep all of them busy to the end.
constexpr std::int64_t kItemsPerWorker = 4;

void CheckRequest(const AttentionArgs& a, std::int64_t request) {
    const std::int64_t kv_len = a.kv_lens[request];
    const std::int64_t num_queries = a.NumQueries(request);
    if (kv_len < num_queries) {
        throw std::out_of_range("request " + std::to_string(request) + " has " +
                                std::to_string(num_queries) + " queries but a kv length of " +
                                std::to_string(kv_len));
    }
    const std::int64_t first_seen =
        a.window == 0 ? 0 : std::max<std::int64_t>(0, kv_len - num_queries - a.window + 1);
    CheckBlocks(a.batch, request, first_seen, kv_len);
}

// The partitions that queries [first, first + count) see between them.
AttentionItem MakeItem(const AttentionArgs& a, std::int64_t request, std::int64_t first,
                       std::int64_t count) {
    const std::int64_t position = a.kv_lens[request] - a.NumQueries(request) + first;
    const std::int64_t low = a.window == 0 ? 0 : std::max<std::int64_t>(0, position - a.window + 1);
    const std::int64_t first_partition = low / kPartitionTokens;
    const std::int64_t last_partition = (position + count - 1) / kPartitionTokens;
    AttentionItem item{};
    item.request = static_cast<std::int32_t>(request);
    item.first_query = static_cast<std::int32_t>(first);
    item.num_queries = static_cast<std::int32_t>(count);
    item.first_partition = static_cast<std::int32_t>(first_partition);
    item.num_partitions = static_cast<std::int32_t>(last_partition - first_partition + 1);
    item.partial = kNone;
    return item;
}

// Pairs of a query and a key that an item has, about: as if all queries saw what the middle one
// does.
std::int64_t NumPairs(const AttentionArgs& a, const AttentionItem& item) {
    const std::int64_t position = a.kv_lens[item.request] - a.NumQueries(item.request) +
                                  item.first_query + item.num_queries / 2;
    const std::int64_t first = std::int64_t{item.first_partition} * kPartitionTokens;
    const std::int64_t last = first + std::int64_t{item.num_partitions} * kPartitionTokens;
    const std::int64_t low = a.window == 0 ? 0 : position - a.window + 1;
    return item.num_queries * (std::min(last, position + 1) - std::max(first, low));
}

// Queries per item: as many as share the conversion well, but no fewer items than keep the workers
// busy.
std::int64_t QueriesPerItem(const AttentionArgs& a, int num_workers) {
    const std::int64_t largest = std::max<std::int64_t>(1, kBlockRows / a.HeadsPerGroup());
    const std::int64_t wanted_items = kItemsPerWorker * num_workers;
    const std::int64_t even = a.batch.num_tokens * a.num_kv_heads / wanted_items;
    return std::clamp<std::int64_t>(even, 1, largest);
}

// Cuts an item by partitions, for a call that has fewer items than its workers need.
void Split(const AttentionArgs& a, const AttentionItem& whole, std::int64_t pieces,
           AttentionPlan& plan) {
    AttentionItem merge = whole;
    merge.partial = plan.num_partials;
    const std::int64_t rows = whole.num_queries * a.HeadsPerGroup();
    for (std::int64_t i = 0; i < pieces; ++i) {
        const std::int64_t first = whole.num_partitions * i / pieces;
        const std::int64_t last = whole.num_partitions * (i + 1) / pieces;
        AttentionItem piece = whole;
        piece.first_partition = static_cast<std::int32_t>(whole.first_partition + first);
        piece.num_partitions = static_cast<std::int32_t>(last - first);
        piece.partial = merge.partial + first * rows;
        plan.items.push_back(piece);
    }
    plan.num_partials += whole.num_partitions * rows;
    plan.merges.push_back(merge);
}

void AttendItems(const PlannedAttention& call, Worker& worker) {
    switch (call.args.cache_type) {
        case FloatType::kF32:
            return TL_DISPATCH(AttendAll<float>)(call, worker);
        case FloatType::kF16:
            return TL_DISPATCH(AttendAll<Half>)(call, worker);
        case FloatType::kBf16:
            return TL_DISPATCH(AttendAll<Bf16>)(call, worker);
        case FloatType::kI8:
            return TL_DISPATCH(AttendAll<Int8>)(call, worker);
    }
}

void MergeItems(const PlannedAttention& call, Worker& worker) {
    switch (call.args.cache_type) {
        case FloatType::kF32:
            return TL_DISPATCH(MergeAll<float>)(call, worker);
        case FloatType::kF16:
            return TL_DISPATCH(MergeAll<Half>)(call, worker);
        case FloatType::kBf16:
            return TL_DISPATCH(MergeAll<Bf16>)(call, worker);
        case FloatType::kI8:
            return TL_DISPATCH(MergeAll<Int8>)(call, worker);
    }
}

}  // namespace

AttentionPlan AttentionPlan::Make(const AttentionArgs& args, int num_workers) {
    CheckStarts(args.batch);
    for (std::int64_t r = 0; r < args.batch.num_requests; ++r) {
        if (args.NumQueries(r) > 0) CheckRequest(args, r);
    }
    const std::int64_t per_item = QueriesPerItem(args, num_workers);
    std::vector<AttentionItem> wholes;
    for (std::int64_t r = 0; r < args.batch.num_requests; ++r) {
        const std::int64_t num_queries = args.NumQueries(r);
        for (std::int64_t first = 0; first < num_queries; first += per_item) {
            AttentionItem item = MakeItem(args, r, first, std::min(per_item, num_queries - first));
            for (std::int64_t h = 0; h < args.num_kv_heads; ++h) {
                item.kv_head = static_cast<std::int32_t>(h);
                wholes.push_back(item);
            }
        }
    }
    AttentionPlan plan;
    plan.max_rows = per_item * args.HeadsPerGroup();
    const auto num_wholes = static_cast<std::int64_t>(wholes.size());
    const std::int64_t wanted = num_workers == 1 ? 0 : kItemsPerWorker * num_workers;
    for (const AttentionItem& item : wholes) {
        const std::int64_t pieces =
            std::min<std::int64_t>(item.num_partitions, (wanted + num_wholes - 1) / num_wholes);
        if (num_wholes >= wanted || pieces < 2) {
            plan.items.push_back(item);
        } else {
            Split(args, item, pieces, plan);
        }
    }
    // The longest first, so that no worker is left with one at the end.
    std::stable_sort(plan.items.begin(), plan.items.end(), [&](const auto& a, const auto& b) {
        return NumPairs(args, a) > NumPairs(args, b);
    });
    return plan;
}

std::size_t AttentionScratchBytes(const AttentionArgs& args, const AttentionPlan& plan,
                                  int num_workers) {
    const std::int64_t buffers = AttentionBuffers(args, plan.max_rows, nullptr).total;
    const std::int64_t partials = plan.num_partials * PartialFloats(args);
    return static_cast<std::size_t>(num_workers * buffers + partials) * sizeof(float);
}

void PagedAttention(const PlannedAttention& call, ThreadPool& pool, std::int64_t max_workers) {
    pool.Run(AttendItems, call, std::min<std::int64_t>(max_workers, call.num_workers));
    if (call.num_merges > 0) pool.Run(MergeItems, call, 1);
}

}  // namespace tokenlight::cpu

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/paged.h"
#include "cpu/threads.h"

namespace tokenlight::cpu {

// Keys and values are taken in partitions of this many tokens, counted from a request's first. A
// partition's softmax starts afresh and partitions are merged in order, so that a row's bits depend
// on its own position only: not on how queries are chunked, what else is in the batch, or which
// worker takes which partition.
constexpr int kPartitionTokens = 256;

struct AttentionArgs {
    float* out;  // [num_tokens, num_heads, value_dim], contiguous
    const float* q;
    const void* k_cache;  // [num_blocks, num_kv_heads, block_tokens, head_dim]
    const void* v_cache;
    const std::int32_t* kv_lens;  // [num_requests]
    const float* sinks;           // [num_heads] or null
    PagedBatch batch;
    FloatType cache_type;
    std::int64_t num_heads;
    std::int64_t num_kv_heads;
    std::int64_t head_dim;
    std::int64_t q_stride;  // floats between tokens
    std::int64_t window;    // 0: none
    float scale;
    float softcap;  // 0: none
    // Of latent attention: a head's last `tail_dim` elements are in an array of their own, and only
    // the first `value_dim` of a row of `v_cache` (0: all) are values.
    const float* q_tail = nullptr;
    std::int64_t tail_dim = 0;
    std::int64_t tail_stride = 0;  // floats between tokens
    std::int64_t value_dim = 0;

    std::int64_t ValueDim() const { return value_dim == 0 ? head_dim : value_dim; }
    std::int64_t HeadsPerGroup() const { return num_heads / num_kv_heads; }
    std::int64_t NumQueries(std::int64_t request) const {
        return batch.query_starts[request + 1] - batch.query_starts[request];
    }
};

// Some queries of a request, for the heads that share a kv head, over some of the partitions that
// they see.
struct AttentionItem {
    std::int32_t request;
    std::int32_t kv_head;
    std::int32_t first_query;
    std::int32_t num_queries;
    std::int32_t first_partition;
    std::int32_t num_partitions;
    std::int64_t
        partial;  // index of its first partial result, or kNone: it sees all and writes the output
};
constexpr std::int64_t kNone = -1;

// A call cut into items. Cuts change who computes what and never a bit of the result.
struct AttentionPlan {
    std::vector<AttentionItem> items;
    std::vector<AttentionItem> merges;  // of partial results, once all items are done
    std::int64_t num_partials = 0;      // rows of partial results
    std::int64_t max_rows = 0;          // queries * heads per group of the largest item

    // Throws std::out_of_range when the arguments lead outside the cache.
    static AttentionPlan Make(const AttentionArgs& args, int num_workers);
};

// A plan's parts as kernels read them; the plan outlives the call.
struct PlannedAttention {
    AttentionArgs args;
    const AttentionItem* items;
    const AttentionItem* merges;
    std::int64_t num_items;
    std::int64_t num_merges;
    std::int64_t max_rows;
    int num_workers;  // at most so many take part
    void* scratch;    // AttentionScratchBytes bytes, aligned to 64

    PlannedAttention(const AttentionArgs& a, const AttentionPlan& plan, int workers, void* memory)
        : args(a),
          items(plan.items.data()),
          merges(plan.merges.data()),
          num_items(static_cast<std::int64_t>(plan.items.size())),
          num_merges(static_cast<std::int64_t>(plan.merges.size())),
          max_rows(plan.max_rows),
          num_workers(workers),
          scratch(memory) {}
};

std::size_t AttentionScratchBytes(const AttentionArgs& args, const AttentionPlan& plan,
                                  int num_workers);

// Computes the call's items, then merges what they left in parts.
void PagedAttention(const PlannedAttention& call, ThreadPool& pool, std::int64_t max_workers);

}  // namespace tokenlight::cpu

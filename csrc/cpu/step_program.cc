// SPDX-License-Identifier: Apache-2.0
#include "cpu/step_program.h"

#include <stdexcept>

namespace tokenlight::cpu {

std::uintptr_t StepRun::AddressOf(const Place& place) const {
    switch (place.base) {
        case Place::Base::kNone:
            return 0;
        case Place::Base::kFixed:
            return place.value;
        case Place::Base::kArena:
            return reinterpret_cast<std::uintptr_t>(arena_) + place.value;
        case Place::Base::kField:
            return FieldAt(place).address;
    }
    return 0;
}

const Field& StepRun::FieldAt(const Place& place) const {
    if (place.base != Place::Base::kField) {
        throw std::invalid_argument("an instruction wants a tensor that the step brings");
    }
    return fields_.at(place.value);
}

PagedBatch StepRun::Batch(const PagedPlaces& places) const {
    const Field& table = FieldAt(places.block_table);
    return {At<const std::int32_t>(places.query_starts),
            At<const std::int32_t>(places.block_table),
            At<const std::int32_t>(places.slots),
            FieldAt(places.slots).num_rows,
            table.num_rows,
            table.num_columns,
            table.stride,
            num_tokens_,
            places.num_blocks,
            places.block_tokens};
}

const StepRun::Attention& StepRun::PlanAttention(const AttentionArgs& args, int num_workers) {
    for (const Attention& made : attentions_) {
        if (made.like.num_heads == args.num_heads && made.like.num_kv_heads == args.num_kv_heads &&
            made.like.head_dim == args.head_dim && made.like.window == args.window &&
            made.like.batch.num_blocks == args.batch.num_blocks &&
            made.like.batch.block_tokens == args.batch.block_tokens) {
            return made;
        }
    }
    Attention made{args, AttentionPlan::Make(args, num_workers), 0};
    for (const AttentionItem& item : made.plan.items) {
        made.work += std::int64_t{item.num_partitions} * item.num_queries;
    }
    made.work *= args.HeadsPerGroup() * args.head_dim * kPartitionTokens / 8;
    attentions_.push_back(std::move(made));
    return attentions_.back();
}

void StepRun::CheckOnce(const WriteKvArgs& args) {
    for (const PagedBatch& checked : checked_) {
        if (checked.num_blocks == args.batch.num_blocks &&
            checked.block_tokens == args.batch.block_tokens) {
            return;
        }
    }
    CheckWriteKv(args);
    checked_.push_back(args.batch);
}

void StepProgram::Run(std::int64_t first, std::int64_t last, std::int64_t num_tokens,
                      std::int64_t num_sampled) {
    if (first < 0 || last > size()) throw std::out_of_range("no such instructions");
    StepRun run(arena_, fields_, num_tokens, num_sampled);
    for (std::int64_t i = first; i < last; ++i) nodes_[static_cast<std::size_t>(i)](run);
}

}  // namespace tokenlight::cpu

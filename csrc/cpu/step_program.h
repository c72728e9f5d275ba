// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "cpu/attention.h"
#include "cpu/paged.h"
#include "cpu/write_kv.h"

namespace tokenlight::cpu {

// Where an instruction finds a tensor: at a fixed address, in the arena, or among what a step
// brings.
struct Place {
    enum class Base : std::uint8_t { kNone, kFixed, kArena, kField };
    Base base = Base::kNone;
    std::uintptr_t value = 0;  // an address, bytes into the arena, or the number of a field
};

// A number of rows: a multiple of the step's tokens or of its sampled rows.
struct Count {
    std::int64_t per_token = 0;
    std::int64_t per_sampled = 0;
};

// A tensor that a step brings.
struct Field {
    std::uintptr_t address = 0;
    std::int64_t num_rows = 0;
    std::int64_t num_columns = 0;
    std::int64_t stride = 0;  // elements between rows
};

// Where the requests of a step are told, and the cache that they are in.
struct PagedPlaces {
    Place query_starts;
    Place block_table;
    Place slots;
    std::int64_t num_blocks;
    std::int64_t block_tokens;
};

// One run of a program: resolves places and counts, and keeps what its instructions share.
class StepRun {
  public:
    StepRun(std::byte* arena, const std::vector<Field>& fields, std::int64_t num_tokens,
            std::int64_t num_sampled)
        : arena_(arena), fields_(fields), num_tokens_(num_tokens), num_sampled_(num_sampled) {}

    template <class T>
    T* At(const Place& place) const {
        return reinterpret_cast<T*>(AddressOf(place));
    }
    std::int64_t Get(const Count& count) const {
        return count.per_token * num_tokens_ + count.per_sampled * num_sampled_;
    }
    // Throws std::invalid_argument where `place` is not a field.
    const Field& FieldAt(const Place& place) const;
    PagedBatch Batch(const PagedPlaces& places) const;

    // The cuts of an attention, made once for all layers that are alike.
    struct Attention {
        AttentionArgs like;
        AttentionPlan plan;
        std::int64_t work;
    };
    const Attention& PlanAttention(const AttentionArgs& args, int num_workers);

    // CheckWriteKv, once for all caches of one size.
    void CheckOnce(const WriteKvArgs& args);

  private:
    std::uintptr_t AddressOf(const Place& place) const;

    std::byte* arena_;
    const std::vector<Field>& fields_;
    std::int64_t num_tokens_;
    std::int64_t num_sampled_;
    std::vector<Attention> attentions_;
    std::vector<PagedBatch> checked_;
};

// A step as a straight run of calls of kernels, with no Python between them.
//
// Ownership: of nothing that places point to. Thread rules: one thread at a time.
class StepProgram {
  public:
    using Node = std::function<void(StepRun&)>;

    // `arena` is aligned to 64 bytes and outlives the program. Products of its nodes round
    // activations to bytes as LinearArgs has it.
    StepProgram(std::uintptr_t arena, std::int64_t num_fields, bool rounds_to_bytes)
        : arena_(reinterpret_cast<std::byte*>(arena)),
          fields_(static_cast<std::size_t>(num_fields)),
          rounds_to_bytes_(rounds_to_bytes) {}

    bool rounds_to_bytes() const { return rounds_to_bytes_; }

    void Append(Node node) { nodes_.push_back(std::move(node)); }
    std::int64_t size() const { return static_cast<std::int64_t>(nodes_.size()); }

    // Throws std::out_of_range when there is no such field.
    void SetField(std::int64_t index, const Field& field) {
        fields_.at(static_cast<std::size_t>(index)) = field;
    }

    // Runs the nodes [first, last) over the fields as they are set. Throws std::out_of_range as the
    // kernels' checks do; nothing is promised of the arena then.
    void Run(std::int64_t first, std::int64_t last, std::int64_t num_tokens,
             std::int64_t num_sampled);

  private:
    std::byte* arena_;
    std::vector<Field> fields_;
    std::vector<Node> nodes_;
    bool rounds_to_bytes_;
};

}  // namespace tokenlight::cpu

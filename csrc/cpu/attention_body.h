// SPDX-License-Identifier: Apache-2.0
// Paged attention by items: the partitions of some queries, each softened by itself, merged in
// order.

#include "cpu/attention_partition_body.h"

// A partial result, or what has been merged so far: PartialFloats floats.
struct Partial {
    float* at;
    float& largest() const { return at[0]; }
    float& weight() const { return at[1]; }
    float* sums() const { return at + 16; }
};

inline void SetPartial(Partial to, float largest, float weight, const float* sums,
                       std::int64_t padded) {
    to.largest() = largest;
    to.weight() = weight;
    for (std::int64_t i = 0; i < padded; i += kLanes) Store(to.sums() + i, Load(sums + i));
}

// Adds a partition that comes after what `into` holds. A weight of 0 says that nothing was seen
// yet, or here.
inline void Merge(Partial into, float largest, float weight, const float* sums,
                  std::int64_t padded) {
    if (weight == 0.0F) return;
    if (into.weight() == 0.0F) return SetPartial(into, largest, weight, sums, padded);
    const float most = Most(into.largest(), largest);
    const Vec old_scale = Exp2(Set(into.largest() - most)), scale = Exp2(Set(largest - most));
    float weights[kLanes];
    Store(weights, Fma(Set(into.weight()), old_scale, Mul(Set(weight), scale)));
    into.weight() = weights[0];
    into.largest() = most;
    for (std::int64_t i = 0; i < padded; i += kLanes) {
        Store(into.sums() + i, Fma(Load(into.sums() + i), old_scale, Mul(Load(sums + i), scale)));
    }
}

template <class T>
inline void WriteRow(const Span<T>& span, int row, Partial state) {
    const AttentionArgs& a = span.args;
    const int value_dim = static_cast<int>(a.ValueDim());
    float* out = a.out + (span.TokenOf(row) * a.num_heads + span.HeadOf(row)) * value_dim;
    Vec weight = Set(state.weight());
    if (a.sinks != nullptr) {
        weight = Add(weight, Exp(Set(a.sinks[span.HeadOf(row)] - state.largest() * kLn2)));
    }
    const int full = value_dim / kLanes * kLanes;
    for (int i = 0; i < full; i += kLanes) Store(out + i, Div(Load(state.sums() + i), weight));
    if (full < value_dim) {
        StoreN(out + full, Div(Load(state.sums() + full), weight), value_dim - full);
    }
}

template <class T>
inline void AttendItem(const AttentionArgs& a, const AttentionItem& item, const AttentionBuffers& b,
                       float* partials) {
    const Span<T> span(a, item);
    const std::int64_t padded = PaddedValue(a), partial_floats = PartialFloats(a);
    for (std::int64_t t = 0; t < kPartitionTokens; t += kTileTokens) {
        PrefetchTile(span, a.k_cache, item.first_partition * kPartitionTokens + t);
    }
    if (span.IsFew()) ScaleQueries(span, 0, span.num_rows, b);
    for (int row = 0; row < span.num_rows; ++row)
        Partial{b.states + row * partial_floats}.weight() = 0;
    for (std::int64_t p = 0; p < item.num_partitions; ++p) {
        const View<T> view(span, item.first_partition + p);
        const auto take = [&](int row, int at) {
            const float* sums = b.sums + at * padded;
            if (item.partial == kNone) {
                const Partial state{b.states + row * partial_floats};
                Merge(state, b.largest[at], b.weights[at], sums, padded);
                if (p == item.num_partitions - 1) WriteRow(span, row, state);
            } else {
                const std::int64_t index = item.partial + p * span.num_rows + row;
                SetPartial({partials + index * partial_floats}, b.largest[at], b.weights[at], sums,
                           padded);
            }
        };
        if (span.IsFew()) {
            AttendFew(view, b, take);
        } else {
            AttendMany(view, p == 0, b, take);
        }
    }
}

template <class T>
inline void MergeItem(const AttentionArgs& a, const AttentionItem& item, float* partials) {
    const Span<T> span(a, item);
    const std::int64_t padded = PaddedValue(a), partial_floats = PartialFloats(a);
    for (int row = 0; row < span.num_rows; ++row) {
        const Partial first{partials + (item.partial + row) * partial_floats};
        for (std::int64_t p = 1; p < item.num_partitions; ++p) {
            const Partial next{partials +
                               (item.partial + p * span.num_rows + row) * partial_floats};
            Merge(first, next.largest(), next.weight(), next.sums(), padded);
        }
        WriteRow(span, row, first);
    }
}

template <class T>
inline void AttendAll(const PlannedAttention& call, Worker& worker) {
    auto* memory = static_cast<float*>(call.scratch);
    const std::int64_t buffer_floats = AttentionBuffers(call.args, call.max_rows, memory).total;
    const AttentionBuffers buffers(call.args, call.max_rows,
                                   memory + worker.index() * buffer_floats);
    float* partials = memory + call.num_workers * buffer_floats;
    for (std::int64_t i = worker.Next(); i < call.num_items; i = worker.Next()) {
        AttendItem<T>(call.args, call.items[i], buffers, partials);
    }
}

// Once all items are done.
template <class T>
inline void MergeAll(const PlannedAttention& call, Worker& worker) {
    auto* memory = static_cast<float*>(call.scratch);
    const std::int64_t buffer_floats = AttentionBuffers(call.args, call.max_rows, memory).total;
    float* partials = memory + call.num_workers * buffer_floats;
    for (std::int64_t i = worker.Next(); i < call.num_merges; i = worker.Next()) {
        MergeItem<T>(call.args, call.merges[i], partials);
    }
}

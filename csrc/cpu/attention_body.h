// SPDX-License-Identifier: Apache-2.0
// Paged attention by items: the partitions of some queries, each softened by itself, merged in
// order.

#include "cpu/attention_tile_body.h"

// Up to this many rows read the cache in place.
constexpr int kCachedRows = 8;

// The item's place in the cache and its rows.
template <class T>
struct Span {
    const AttentionArgs& args;
    const AttentionItem& item;
    const std::int32_t* blocks;
    std::int64_t first_position;  // of the item's first query
    int num_rows;

    Span(const AttentionArgs& a, const AttentionItem& i)
        : args(a),
          item(i),
          blocks(a.batch.Row(i.request)),
          first_position(a.kv_lens[i.request] - a.NumQueries(i.request) + i.first_query),
          num_rows(static_cast<int>(i.num_queries * a.HeadsPerGroup())) {}

    std::int64_t Position(int row) const { return first_position + row / args.HeadsPerGroup(); }
    // The first token that a query at `position` sees.
    std::int64_t Low(std::int64_t position) const {
        return args.window == 0 ? 0 : Most<std::int64_t>(0, position - args.window + 1);
    }
    // The token after the last that a query of the item sees in its partitions.
    std::int64_t End() const {
        const std::int64_t last = std::int64_t{item.first_partition} + item.num_partitions;
        return Least(last * kPartitionTokens, Position(num_rows - 1) + 1);
    }
    std::int64_t TokenOf(int row) const {
        return args.batch.query_starts[item.request] + item.first_query +
               row / args.HeadsPerGroup();
    }
    std::int64_t HeadOf(int row) const {
        return item.kv_head * args.HeadsPerGroup() + row % args.HeadsPerGroup();
    }

    std::int64_t RowElements() const { return args.head_dim + kRowExtra<T>; }

    // Calls f(first row, how many) for each piece of the tokens [first, last) that lies in a block.
    template <class F>
    void EachRun(const void* cache, std::int64_t first, std::int64_t last, F f) const {
        const std::int64_t block_tokens = args.batch.block_tokens;
        std::int64_t column = first / block_tokens;
        std::int64_t offset = first - column * block_tokens;
        for (; first < last; ++column, offset = 0) {
            const std::int64_t count = Least(last - first, block_tokens - offset);
            const std::int64_t head = blocks[column] * args.num_kv_heads + item.kv_head;
            f(static_cast<const T*>(cache) + (head * block_tokens + offset) * RowElements(), count);
            first += count;
        }
    }
    // Where the cache has the tokens [first, first + count); the last is repeated to fill the tile.
    void FindRows(const void* cache, std::int64_t first, int count,
                  const T* rows[kTileTokens]) const {
        int j = 0;
        EachRun(cache, first, first + count, [&](const T* row, std::int64_t run) {
            for (; run > 0; --run, row += RowElements()) rows[j++] = row;
        });
        for (; j < kTileTokens; ++j) rows[j] = rows[count - 1];
    }
};

// Scaled queries: row after row, padded with zeros, and turned (dimension by dimension).
template <class T>
inline void ScaleQueries(const Span<T>& span, std::int64_t stride, const AttentionBuffers& b) {
    const AttentionArgs& a = span.args;
    const std::int64_t padded = PaddedHead(a);
    const float scale = a.scale * kLog2E;
    for (int row = 0; row < span.num_rows; ++row) {
        const std::int64_t own_dim = a.head_dim - a.tail_dim;
        const float* q = a.q + span.TokenOf(row) * a.q_stride + span.HeadOf(row) * own_dim;
        float* out = b.queries + row * padded;
        for (std::int64_t i = 0; i < own_dim; ++i) out[i] = q[i] * scale;
        for (std::int64_t i = a.head_dim; i < padded; ++i) out[i] = 0.0F;
        if (a.tail_dim > 0) {
            const float* tail =
                a.q_tail + span.TokenOf(row) * a.tail_stride + span.HeadOf(row) * a.tail_dim;
            for (std::int64_t i = 0; i < a.tail_dim; ++i) out[own_dim + i] = tail[i] * scale;
        }
        for (std::int64_t i = 0; i < padded; ++i) b.turned_queries[i * stride + row] = out[i];
    }
}

// Asks for the tile's worth of tokens from `first` that lie before the item's end. A pass over the
// keys of a partition asks for its values, a pass over its values for the keys of the next: memory
// takes longer than a tile.
template <class T>
inline void PrefetchTile(const Span<T>& span, const void* cache, std::int64_t first) {
    const std::int64_t last = Least<std::int64_t>(first + kTileTokens, span.End());
    // Columns of the table before the window may hold anything.
    first = Most(first, span.Low(span.first_position));
    span.EachRun(cache, first, last, [&](const T* row, std::int64_t run) {
        const char* line = reinterpret_cast<const char*>(row);
        const char* end = line + run * span.RowElements() * static_cast<std::int64_t>(sizeof(T));
        line -= reinterpret_cast<std::uintptr_t>(line) % 64;
        for (; line < end; line += 64) PrefetchFar(line);
    });
}

// Each row's scores of a partition to weights, in the vectors [first, last); its largest score and
// its sum of weights.
template <class T>
inline void SoftenRows(const Span<T>& span, std::int64_t partition, int first, int last,
                       const AttentionBuffers& b) {
    const AttentionArgs& a = span.args;
    const std::int64_t start = partition * kPartitionTokens;
    const auto low_of = [&](int row) {
        return static_cast<int>(Most(start, span.Low(span.Position(row))) - start);
    };
    const auto high_of = [&](int row) {
        return static_cast<int>(
            Least<std::int64_t>(kPartitionTokens, span.Position(row) + 1 - start));
    };
    // In two passes, so that no row waits for the largest score of another.
    for (int row = 0; row < span.num_rows; ++row) {
        float* scores = b.scores + row * kPartitionTokens;
        const int low = low_of(row), high = high_of(row);
        if (low >= high) continue;
        if (a.softcap != 0.0F) {
            CapScores(scores, low / kLanes, (high + kLanes - 1) / kLanes, a.softcap);
        }
        b.largest[row] = FindLargest(scores, low, high);
    }
    for (int row = 0; row < span.num_rows; ++row) {
        float* scores = b.scores + row * kPartitionTokens;
        const int low = low_of(row), high = high_of(row);
        const bool is_blind = low >= high;
        b.weights[row] = Soften(scores, first, last, is_blind ? last : low / kLanes,
                                is_blind ? last : (high + kLanes - 1) / kLanes, b.largest[row]);
    }
}

// One partition: for each row its largest score, its sum of weights (0 where it sees nothing) and
// its weighted values.
template <class T>
inline void AttendPartition(const Span<T>& span, std::int64_t partition, std::int64_t stride,
                            const AttentionBuffers& b) {
    const AttentionArgs& a = span.args;
    const std::int64_t start = partition * kPartitionTokens;
    const std::int64_t low = Most(start, span.Low(span.first_position));
    const std::int64_t high = Least(start + kPartitionTokens, span.Position(span.num_rows - 1) + 1);
    const int head_dim = static_cast<int>(a.head_dim);
    const int first_tile = static_cast<int>((low - start) / kTileTokens) * kTileTokens;
    const int end = static_cast<int>(high - start);
    const bool is_few = span.num_rows <= kCachedRows;
    const std::int64_t padded = PaddedHead(a);
    const T* rows[kTileTokens];
    for (int t = first_tile; t < end; t += kTileTokens) {
        // Of a tile that the window cuts, the tokens before it may hold anything: the first seen
        // stands for them.
        const int count = static_cast<int>(Least<std::int64_t>(kTileTokens, end - t));
        const int skipped = static_cast<int>(Most<std::int64_t>(0, low - start - t));
        span.FindRows(a.k_cache, start + t + skipped, count - skipped, rows + 0);
        if (skipped > 0) {
            for (int j = kTileTokens - 1; j >= 0; --j)
                rows[j] = rows[j >= skipped ? j - skipped : 0];
        }
        PrefetchTile(span, a.v_cache, start + t);
        if (!is_few) {
            TurnKeys(rows, head_dim, b.keys);
            ScoreTileTurned(b, stride, static_cast<int>(padded), span.num_rows, t);
        } else {
            ScoreTileCached(b, padded, rows, head_dim, span.num_rows, t);
        }
        ScaleTile(b, rows, head_dim, span.num_rows, t, kTileTokens);
    }
    SoftenRows(span, partition, first_tile / kLanes, (end + kLanes - 1) / kLanes, b);
    const int value_dim = static_cast<int>(a.ValueDim());
    const std::int64_t padded_value = PaddedValue(a);
    for (std::int64_t i = 0; i < span.num_rows * padded_value; i += kLanes) {
        Store(b.sums + i, Zero());
    }
    const bool is_in_place = is_few && value_dim == padded_value;
    const int first_seen = static_cast<int>(low - start);
    const float* converted[kPartitionTokens];
    for (int t = first_seen; t < end; t += kTileTokens) {
        const int count = static_cast<int>(Least<std::int64_t>(kTileTokens, end - t));
        span.FindRows(a.v_cache, start + t, count, rows);
        PrefetchTile(span, a.k_cache, start + t + kPartitionTokens);
        ScaleTile(b, rows, head_dim, span.num_rows, t, count);
        if (is_in_place) {
            AddValueTile(b, rows, span.num_rows, padded_value, t, count);
        } else {
            ConvertValues(rows, count, value_dim, padded_value, b.values + t * padded_value,
                          converted + t);
        }
    }
    // All at once, so that a row's sums stay in registers.
    if (!is_in_place) {
        AddValueTile(b, converted + first_seen, span.num_rows, padded_value, first_seen,
                     end - first_seen);
    }
}

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
inline void AttendItem(const AttentionArgs& a, const AttentionItem& item, std::int64_t stride,
                       const AttentionBuffers& b, float* partials) {
    const Span<T> span(a, item);
    const std::int64_t padded = PaddedValue(a), partial_floats = PartialFloats(a);
    for (std::int64_t t = 0; t < kPartitionTokens; t += kTileTokens) {
        PrefetchTile(span, a.k_cache, item.first_partition * kPartitionTokens + t);
    }
    ScaleQueries(span, stride, b);
    for (int row = 0; row < span.num_rows; ++row)
        Partial{b.states + row * partial_floats}.weight() = 0;
    for (std::int64_t p = 0; p < item.num_partitions; ++p) {
        AttendPartition(span, item.first_partition + p, stride, b);
        for (int row = 0; row < span.num_rows; ++row) {
            const float* sums = b.sums + row * padded;
            if (item.partial == kNone) {
                Merge({b.states + row * partial_floats}, b.largest[row], b.weights[row], sums,
                      padded);
            } else {
                const std::int64_t index = item.partial + p * span.num_rows + row;
                SetPartial({partials + index * partial_floats}, b.largest[row], b.weights[row],
                           sums, padded);
            }
        }
    }
    if (item.partial != kNone) return;
    for (int row = 0; row < span.num_rows; ++row)
        WriteRow(span, row, {b.states + row * partial_floats});
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
    const std::int64_t stride = (call.max_rows + 15) / 16 * 16;
    for (std::int64_t i = worker.Next(); i < call.num_items; i = worker.Next()) {
        AttendItem<T>(call.args, call.items[i], stride, buffers, partials);
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

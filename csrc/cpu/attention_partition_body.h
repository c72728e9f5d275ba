// SPDX-License-Identifier: Apache-2.0
// Paged attention over one partition: an item's rows and what they see of it.

#include "cpu/attention_tile_body.h"
#include "cpu/attention_whole_body.h"

// The item's place in the cache and its rows.
template <class T>
struct Span {
    const AttentionArgs& args;
    const AttentionItem& item;
    const std::int32_t* blocks;
    std::int64_t first_position;  // of the item's first query
    int heads_per_group;
    int num_rows;

    Span(const AttentionArgs& a, const AttentionItem& i)
        : args(a),
          item(i),
          blocks(a.batch.Row(i.request)),
          first_position(a.kv_lens[i.request] - a.NumQueries(i.request) + i.first_query),
          heads_per_group(static_cast<int>(a.HeadsPerGroup())),
          num_rows(i.num_queries * heads_per_group) {}

    bool IsFew() const { return num_rows <= kRowsAtOnce; }
    std::int64_t Position(int row) const { return first_position + row / heads_per_group; }
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
        return args.batch.query_starts[item.request] + item.first_query + row / heads_per_group;
    }
    std::int64_t HeadOf(int row) const {
        return std::int64_t{item.kv_head} * heads_per_group + row % heads_per_group;
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

// A row's query: its own array's elements, then the tail's, then zeros.
template <class T>
struct Query {
    const float* own;
    const float* tail;
    std::int64_t own_dim;
    std::int64_t head_dim;

    Query(const Span<T>& span, int row)
        : own_dim(span.args.head_dim - span.args.tail_dim), head_dim(span.args.head_dim) {
        const AttentionArgs& a = span.args;
        own = a.q + span.TokenOf(row) * a.q_stride + span.HeadOf(row) * own_dim;
        tail = a.q_tail + span.TokenOf(row) * a.tail_stride + span.HeadOf(row) * a.tail_dim;
    }

    // Elements [i, i + kLanes).
    Vec From(std::int64_t i) const {
        if (i + kLanes <= own_dim) return Load(own + i);
        float some[kLanes] = {};
        for (std::int64_t j = i; j < Least(i + kLanes, head_dim); ++j) {
            some[j - i] = j < own_dim ? own[j] : tail[j - own_dim];
        }
        return Load(some);
    }
};

// Scaled queries, row after row.
template <class T>
inline void ScaleQueries(const Span<T>& span, int first, int end, const AttentionBuffers& b) {
    const std::int64_t padded = PaddedHead(span.args);
    const Vec scale = Set(span.args.scale * kLog2E);
    for (int row = first; row < end; ++row) {
        const Query<T> query(span, row);
        float* out = kIsWhole<T> ? b.sums : b.queries + row * padded;
        for (std::int64_t i = 0; i < padded; i += kLanes) Store(out + i, Mul(query.From(i), scale));
        if constexpr (kIsWhole<T>) {
            RoundQuery(out, static_cast<int>(padded), b.queries + row * padded);
        }
    }
}

// Makes ready the queries of kTurnedRows rows, or of what is left of them, and asks for those of
// the next: kGroupRows rows turned, dimension by dimension, after as many; whole ones are not
// turned.
template <class T>
inline void TurnQueries(const Span<T>& span, int first, const AttentionBuffers& b) {
    const std::int64_t padded = PaddedHead(span.args);
    const int end = Least(first + kTurnedRows, span.num_rows);
    for (int row = end; row < Least(end + kTurnedRows, span.num_rows); ++row) {
        const Query<T> query(span, row);
        for (std::int64_t i = 0; i < query.own_dim; i += kLanes) PrefetchFar(query.own + i);
    }
    if constexpr (kIsWhole<T>) return ScaleQueries(span, first, end, b);
    const Vec scale = Set(span.args.scale * kLog2E);
    for (std::int64_t i = 0; i < padded; i += kLanes) {
        Vec rows[kTurnedRows];
        for (int r = 0; r < kTurnedRows; ++r) {
            rows[r] = Mul(Query<T>(span, Least(first + r, end - 1)).From(i), scale);
        }
        float turned[kLanes][kTurnedRows];
        Transpose(rows, turned[0], kTurnedRows);
        for (int r = 0; r < kTurnedRows; r += kGroupRows) {
            float* out = b.queries + (first + r) * padded + i * kGroupRows;
            for (int j = 0; j < kLanes; ++j, out += kGroupRows) {
                std::memcpy(out, turned[j] + r, kGroupRows * sizeof(float));
            }
        }
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

// What an item's rows see of a partition.
template <class T>
struct View {
    const Span<T>& span;
    std::int64_t start;  // the partition's first token
    int first;           // tokens [first, end) of it are seen
    int end;
    bool is_whole;  // by every row

    View(const Span<T>& s, std::int64_t partition) : span(s), start(partition * kPartitionTokens) {
        const std::int64_t last_position = s.Position(s.num_rows - 1);
        first = static_cast<int>(Most<std::int64_t>(0, s.Low(s.first_position) - start));
        end = EndAt(last_position);
        is_whole = EndAt(s.first_position) == kPartitionTokens && s.Low(last_position) <= start;
    }

    int EndAt(std::int64_t position) const {
        const std::int64_t count = Least<std::int64_t>(kPartitionTokens, position + 1 - start);
        return static_cast<int>(Most<std::int64_t>(0, count));
    }
    // The row sees [Low(row), End(row)), nothing where they cross.
    int Low(int row) const {
        if (is_whole) return 0;
        return static_cast<int>(Most<std::int64_t>(0, span.Low(span.Position(row)) - start));
    }
    int End(int row) const { return is_whole ? kPartitionTokens : EndAt(span.Position(row)); }

    int FirstTile() const { return first / kTileTokens * kTileTokens; }
    int TileCount(int t) const { return Least(kTileTokens, end - t); }

    // Keys of the tile at t. Of one that the window cuts, the tokens before it may hold anything:
    // the first seen stands for them.
    void FindKeys(int t, const T* rows[kTileTokens]) const {
        const int skipped = Most(0, first - t);
        span.FindRows(span.args.k_cache, start + t + skipped, TileCount(t) - skipped, rows);
        if (skipped == 0) return;
        for (int j = kTileTokens - 1; j >= 0; --j) rows[j] = rows[j >= skipped ? j - skipped : 0];
    }
};

// Scores to weights for `num_rows` rows from `first_row`, whose buffers are the first; zeros for
// what a row does not see up to `end`. Also their largest scores and sums of weights.
template <class T>
inline void SoftenRows(const View<T>& view, int first_row, int num_rows, int end,
                       const AttentionBuffers& b) {
    const float softcap = view.span.args.softcap;
    // In two passes, so that no row waits for the largest score of another.
    for (int r = 0; r < num_rows; ++r) {
        const int low = view.Low(first_row + r), high = view.End(first_row + r);
        float* scores = b.scores + r * kPartitionTokens;
        b.largest[r] = -INFINITY;
        if (low >= high) continue;
        if (softcap != 0.0F) CapScores(scores, low / kLanes, VectorsOf(high), softcap);
        b.largest[r] = FindLargest(scores, low, high);
    }
    const int first = view.first / kLanes, last = VectorsOf(end);
    for (int r = 0; r < num_rows; ++r) {
        const int low = view.Low(first_row + r), high = view.End(first_row + r);
        const bool is_blind = low >= high;
        b.weights[r] =
            Soften(b.scores + r * kPartitionTokens, first, last, is_blind ? last : low / kLanes,
                   is_blind ? last : VectorsOf(high), b.largest[r]);
    }
}

inline void ClearSums(std::int64_t count, float* sums) {
    for (std::int64_t i = 0; i < count; i += kLanes) Store(sums + i, Zero());
}

// The partition for up to kRowsAtOnce rows, which read the cache in place. Calls take(row) with the
// row's largest score, sum of weights (0 where it sees nothing) and weighted values in the buffers.
template <class T, class F>
inline void AttendFew(const View<T>& view, const AttentionBuffers& b, F take) {
    const Span<T>& span = view.span;
    const AttentionArgs& a = span.args;
    const int head_dim = static_cast<int>(a.head_dim), value_dim = static_cast<int>(a.ValueDim());
    const int padded = static_cast<int>(PaddedHead(a));
    const std::int64_t padded_value = PaddedValue(a);
    const T* rows[kTileTokens];
    Scales<T> scales;
    for (int t = view.FirstTile(); t < view.end; t += kTileTokens) {
        view.FindKeys(t, rows);
        PrefetchTile(span, a.v_cache, view.start + t);
        if constexpr (kIsWhole<T>) {
            TurnWholeKeys(rows, head_dim, b.keys);
            InGroups(span.num_rows, [&](auto group, int row) {
                ScoreWhole<group.kCount>(b.queries + row * padded, b.keys, padded,
                                         view.TileCount(t), b.scores + row * kPartitionTokens + t);
            });
        } else {
            ScoreTileCached(b, padded, rows, head_dim, span.num_rows, t);
        }
        scales.Find(rows, kTileTokens, head_dim, t);
    }
    scales.Apply(b.scores, span.num_rows, view.FirstTile(), view.end);
    SoftenRows(view, 0, span.num_rows, view.end, b);
    ClearSums(span.num_rows * padded_value, b.sums);
    for (int t = view.first; t < view.end; t += kTileTokens) {
        const int count = view.TileCount(t);
        span.FindRows(a.v_cache, view.start + t, count, rows);
        PrefetchTile(span, a.k_cache, view.start + t + kPartitionTokens);
        scales.Find(rows, count, head_dim, t);
        scales.Apply(b.scores, span.num_rows, t, t + count);
        if (value_dim == padded_value) {
            AddValueTile(b, rows, span.num_rows, padded_value, t, count);
        } else {
            const float* converted[kTileTokens];
            ConvertValues(rows, count, value_dim, padded_value, b.values, converted);
            AddValueTile(b, converted, span.num_rows, padded_value, t, count);
        }
    }
    for (int row = 0; row < span.num_rows; ++row) take(row, row);
}

// The same for many rows: keys are turned and values converted once for all of them, and a few rows
// at a time go from scores to sums, so that what they leave on the way stays in the first cache. So
// do queries, which the first of an item's partitions makes ready.
template <class T, class F>
inline void AttendMany(const View<T>& view, bool is_first, const AttentionBuffers& b, F take) {
    const Span<T>& span = view.span;
    const AttentionArgs& a = span.args;
    const int head_dim = static_cast<int>(a.head_dim), padded = static_cast<int>(PaddedHead(a));
    const std::int64_t padded_value = PaddedValue(a);
    const T* rows[kTileTokens];
    const float* values[kPartitionTokens];
    Scales<T> key_scales, value_scales;
    for (int t = view.FirstTile(); t < view.end; t += kTileTokens) {
        view.FindKeys(t, rows);
        PrefetchTile(span, a.v_cache, view.start + t);
        if constexpr (kIsWhole<T>) {
            TurnWholeKeys(rows, head_dim, b.keys + t * padded);
        } else {
            TurnKeys(rows, head_dim, b.keys + t * padded);
        }
        key_scales.Find(rows, kTileTokens, head_dim, t);
    }
    for (int t = view.first; t < view.end; t += kTileTokens) {
        const int count = view.TileCount(t);
        span.FindRows(a.v_cache, view.start + t, count, rows);
        PrefetchTile(span, a.k_cache, view.start + t + kPartitionTokens);
        ConvertValues(rows, count, static_cast<int>(a.ValueDim()), padded_value,
                      b.values + t * padded_value, values + t);
        value_scales.Find(rows, count, head_dim, t);
    }
    InGroups(span.num_rows, [&](auto group, int row) {
        constexpr int kRows = group.kCount;
        const int end = view.End(row + kRows - 1);
        if (is_first && row % kTurnedRows == 0) TurnQueries(span, row, b);
        float* queries = b.queries + row * padded;
        for (int t = view.FirstTile(); t < end; t += kTileTokens) {
            const float* keys = b.keys + t * padded;
            const int count = Least(kTileTokens, end - t);
            if constexpr (kIsWhole<T>) {
                ScoreWhole<kRows>(queries, keys, padded, count, b.scores + t);
            } else {
                ScoreTurned<kRows>(queries, keys, padded, count, b.scores + t);
            }
        }
        key_scales.Apply(b.scores, kRows, view.FirstTile(), end);
        SoftenRows(view, row, kRows, end, b);
        value_scales.Apply(b.scores, kRows, view.first, end);
        ClearSums(kRows * padded_value, b.sums);
        AddValueRows<float, kRows>(b.scores + view.first, values + view.first, end - view.first,
                                   padded_value, b.sums);
        for (int r = 0; r < kRows; ++r) take(row + r, r);
    });
}

// SPDX-License-Identifier: Apache-2.0
#include "cpu/sample.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "cpu/weighing.h"

#define TL_BODY "cpu/sample_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {
namespace {

// Tokens fall into buckets by how far their scaled logit z = (max - logit) / temperature is below
// the largest, in steps of 1/16. All from `reach` on share the last bucket. A short reach leaves
// few tokens to count, and nearly every answer is within it; otherwise the row is done again with
// the long one.
constexpr int kBucketsPerUnit = 16;
constexpr int kShortReach = 8;
constexpr int kLongReach = 64;
constexpr int kMaxBuckets = kLongReach * kBucketsPerUnit + 1;

// Below this, dividing by the temperature overflows, and only equals of the largest logit have a
// chance anyway.
constexpr float kMinTemperature = 1e-6F;

std::uint64_t Mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

// A prefix of the tokens in descending order: all of the buckets before `bucket`, and `count` of
// its own.
struct Prefix {
    int bucket;
    std::int64_t count;
    double weight;  // of the whole prefix

    bool IsShorterThan(const Prefix& other) const {
        return bucket != other.bucket ? bucket < other.bucket : count < other.count;
    }
};

struct Token {
    float logit;
    std::int32_t id;
    float weight;
};

// One row's tokens, sorted only where an answer needs it.
class Row {
  public:
    Row(const Weighing& weighed, double far_weight, Token* tokens)
        : last_bucket_(weighed.last_bucket),
          logits_(weighed.logits),
          weights_(weighed.weights),
          buckets_(weighed.buckets),
          sorted_(tokens),
          vocabulary_(weighed.count) {
        std::int64_t num_near = 0;
        for (std::int64_t first = 0; first < vocabulary_; first += kWeighedTogether) {
            if (!weighed.is_near[first / kWeighedTogether]) continue;
            const std::int64_t end = std::min(vocabulary_, first + kWeighedTogether);
            for (std::int64_t i = first; i < end; ++i) {
                if (buckets_[i] == last_bucket_) continue;
                ++num_near;
                ++counts_[buckets_[i]];
                sums_[buckets_[i]] += weights_[i];
            }
        }
        counts_[last_bucket_] = vocabulary_ - num_near;
        sums_[last_bucket_] = far_weight;
    }

    Prefix All() const {
        Prefix all{last_bucket_, counts_[last_bucket_], 0};
        for (const double sum : sums_) all.weight += sum;
        return all;
    }

    Prefix First(std::int64_t count) {
        double weight = 0;
        for (int b = 0; b <= last_bucket_; ++b) {
            if (count <= counts_[b]) {
                SortBucket(b);
                if (is_void_) return {b, 0, weight};
                for (std::int64_t i = 0; i < count; ++i) weight += sorted_[i].weight;
                return {b, count, weight};
            }
            count -= counts_[b];
            weight += sums_[b];
        }
        return All();
    }

    // The shortest prefix of at least (or more than) `target`, within `limit`.
    Prefix Reaching(double target, bool strictly, const Prefix& limit) {
        double weight = 0;
        for (int b = 0; b <= limit.bucket; ++b) {
            const double after = weight + sums_[b];
            const bool reaches = strictly ? after > target : after >= target;
            if (reaches || b == limit.bucket) {
                SortBucket(b);
                if (is_void_) return {b, 0, weight};
                const std::int64_t end = b == limit.bucket ? limit.count : counts_[b];
                for (std::int64_t i = 0; i < end; ++i) {
                    weight += sorted_[i].weight;
                    if (strictly ? weight > target : weight >= target) return {b, i + 1, weight};
                }
                // The same weights summed in another order came short by a rounding.
                return end > 0 ? Prefix{b, end, weight} : limit;
            }
            weight = after;
        }
        return limit;
    }

    // The tokens of at least this weight, the largest having 1.
    Prefix Above(float min_weight, const Prefix& limit) {
        double weight = 0;
        for (int b = 0; b <= limit.bucket; ++b) {
            // A bucket's weights are below those of the bucket before it.
            const bool is_boundary =
                b == last_bucket_ || std::exp(-(b + 1.0) / kBucketsPerUnit) < min_weight;
            if (is_boundary || b == limit.bucket) {
                SortBucket(b);
                if (is_void_) return {b, 0, weight};
                std::int64_t count = 0;
                while (count < counts_[b] && sorted_[count].weight >= min_weight) {
                    weight += sorted_[count++].weight;
                }
                const Prefix above{b, count, weight};
                return above.IsShorterThan(limit) ? above : limit;
            }
            weight += sums_[b];
        }
        return limit;
    }

    // Whether an answer needed the order within the last bucket of a short reach, so that it is
    // void.
    bool is_void() const { return is_void_; }

    // The last token of a prefix.
    std::int32_t Last(const Prefix& prefix) {
        int b = prefix.bucket;
        std::int64_t count = prefix.count;
        while (count == 0 && b > 0) count = counts_[--b];
        SortBucket(b);
        if (is_void_) return 0;
        return sorted_[std::max<std::int64_t>(count, 1) - 1].id;
    }

  private:
    void SortBucket(int bucket) {
        if (bucket == sorted_bucket_) return;
        sorted_bucket_ = bucket;
        if (bucket == last_bucket_ && bucket < kMaxBuckets - 1) {
            is_void_ = true;
            return;
        }
        Token* end = sorted_;
        for (std::int64_t i = 0; i < vocabulary_; ++i) {
            if (buckets_[i] != bucket) continue;
            // A NaN has no place in an order; it weighs nothing and goes last.
            const float logit = std::isnan(logits_[i]) ? -INFINITY : logits_[i];
            *end++ = {logit, static_cast<std::int32_t>(i), weights_[i]};
        }
        std::sort(sorted_, end, [](const Token& a, const Token& b) {
            return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
        });
    }

    const int last_bucket_;
    const float* logits_;
    const float* weights_;
    const std::int32_t* buckets_;
    Token* sorted_;
    std::int64_t vocabulary_;
    int sorted_bucket_ = -1;
    bool is_void_ = false;
    std::int64_t counts_[kMaxBuckets] = {};
    double sums_[kMaxBuckets] = {};
};

std::int64_t PaddedVocabulary(const SampleArgs& a) {
    return (a.vocabulary + kWeighedTogether - 1) / kWeighedTogether * kWeighedTogether;
}

// One worker's weights, buckets, tokens to sort and flags, in this order.
std::size_t RowScratchBytes(const SampleArgs& a) {
    const std::size_t bytes = sizeof(float) + sizeof(std::int32_t) + sizeof(Token) + sizeof(bool);
    return (static_cast<std::size_t>(PaddedVocabulary(a)) * bytes + 63) / 64 * 64;
}

// Nothing when the short reach does not hold the answer.
std::optional<std::int32_t> SampleWithin(const SampleArgs& a, std::int64_t row, float largest,
                                         int reach, float* weights) {
    auto* buckets = reinterpret_cast<std::int32_t*>(weights + PaddedVocabulary(a));
    auto* sorted = reinterpret_cast<Token*>(buckets + PaddedVocabulary(a));
    auto* is_near = reinterpret_cast<bool*>(sorted + PaddedVocabulary(a));
    const Weighing weighing{a.logits + row * a.stride,
                            a.vocabulary,
                            largest,
                            1.0F / std::max(a.temperature[row], kMinTemperature),
                            kBucketsPerUnit,
                            reach * kBucketsPerUnit,
                            weights,
                            buckets,
                            is_near};
    const float far_weight = TL_DISPATCH(Weigh)(weighing);
    Row tokens(weighing, far_weight, sorted);
    Prefix kept = tokens.All();
    const std::int64_t top_k = a.top_k[row];
    if (top_k > 0 && top_k < a.vocabulary) kept = tokens.First(top_k);
    const Prefix of_top_k = kept;
    if (a.top_p[row] < 1.0F) {
        kept = tokens.Reaching(a.top_p[row] * of_top_k.weight, false, of_top_k);
    }
    if (a.min_p[row] > 0.0F) kept = tokens.Above(a.min_p[row], kept);
    const double drawn = UniformAt(a.seeds[row], a.positions[row]) * kept.weight;
    const std::int32_t id = tokens.Last(tokens.Reaching(drawn, true, kept));
    if (tokens.is_void()) return std::nullopt;
    return id;
}

std::int32_t SampleRow(const SampleArgs& a, std::int64_t row, float* weights) {
    const float* logits = a.logits + row * a.stride;
    const std::int64_t largest = TL_DISPATCH(ArgMax)(logits, a.vocabulary);
    if (!(a.temperature[row] > 0.0F) || !std::isfinite(logits[largest])) {
        return static_cast<std::int32_t>(largest);
    }
    const auto near = SampleWithin(a, row, logits[largest], kShortReach, weights);
    if (near.has_value()) return *near;
    return SampleWithin(a, row, logits[largest], kLongReach, weights).value();
}

}  // namespace

double UniformAt(std::int64_t seed, std::int32_t position) {
    const std::uint64_t step = static_cast<std::uint64_t>(position) * 0x9E3779B97F4A7C15U;
    return static_cast<double>(Mix(Mix(static_cast<std::uint64_t>(seed)) + step) >> 11) * 0x1p-53;
}

std::size_t SampleScratchBytes(const SampleArgs& args, int num_workers) {
    return static_cast<std::size_t>(num_workers) * RowScratchBytes(args);
}

void Sample(const SampleArgs& args, Worker& worker) {
    auto* memory = static_cast<std::byte*>(args.scratch) +
                   static_cast<std::size_t>(worker.index()) * RowScratchBytes(args);
    for (std::int64_t row = worker.Next(); row < args.num_rows; row = worker.Next()) {
        args.ids[row] = SampleRow(args, row, reinterpret_cast<float*>(memory));
    }
}

}  // namespace tokenlight::cpu

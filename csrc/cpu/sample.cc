// SPDX-License-Identifier: Apache-2.0
#include "cpu/sample.h"

#include <algorithm>
#include <cmath>

#define TL_BODY "cpu/sample_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {
namespace {

// Tokens fall into buckets by how far their scaled logit z = (max - logit) / temperature is below
// the largest, in steps of 1/16. From z = 64 on a token weighs less than 1e-27 of the first: all of
// those together are below a double's rounding, and share the last bucket.
constexpr int kBucketsPerUnit = 16;
constexpr int kNumBuckets = 64 * kBucketsPerUnit + 1;
constexpr int kLastBucket = kNumBuckets - 1;

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
    Row(const float* logits, float* weights, std::int32_t* buckets, Token* tokens,
        std::int64_t vocabulary)
        : logits_(logits),
          weights_(weights),
          buckets_(buckets),
          sorted_(tokens),
          vocabulary_(vocabulary) {
        for (std::int64_t i = 0; i < vocabulary_; ++i) {
            const int b = buckets_[i];
            ++counts_[b];
            sums_[b] += weights_[i];
        }
    }

    Prefix All() const {
        Prefix all{kLastBucket, counts_[kLastBucket], 0};
        for (const double sum : sums_) all.weight += sum;
        return all;
    }

    Prefix First(std::int64_t count) {
        double weight = 0;
        for (int b = 0; b < kNumBuckets; ++b) {
            if (count <= counts_[b]) {
                SortBucket(b);
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
            const bool is_boundary = std::exp(-(b + 1.0) / kBucketsPerUnit) < min_weight;
            if (is_boundary || b == limit.bucket) {
                SortBucket(b);
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

    // The last token of a prefix.
    std::int32_t Last(const Prefix& prefix) {
        int b = prefix.bucket;
        std::int64_t count = prefix.count;
        while (count == 0 && b > 0) count = counts_[--b];
        SortBucket(b);
        return sorted_[std::max<std::int64_t>(count, 1) - 1].id;
    }

  private:
    void SortBucket(int bucket) {
        if (bucket == sorted_bucket_) return;
        sorted_bucket_ = bucket;
        Token* end = sorted_;
        for (std::int64_t i = 0; i < vocabulary_; ++i) {
            if (buckets_[i] == bucket) {
                *end++ = {logits_[i], static_cast<std::int32_t>(i), weights_[i]};
            }
        }
        std::sort(sorted_, end, [](const Token& a, const Token& b) {
            return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
        });
    }

    const float* logits_;
    const float* weights_;
    const std::int32_t* buckets_;
    Token* sorted_;
    std::int64_t vocabulary_;
    int sorted_bucket_ = -1;
    std::int64_t counts_[kNumBuckets] = {};
    double sums_[kNumBuckets] = {};
};

// Floats, bucket numbers and tokens of one row, for one worker.
std::int64_t PaddedVocabulary(const SampleArgs& a) { return (a.vocabulary + 15) / 16 * 16; }

std::size_t RowScratchBytes(const SampleArgs& a) {
    const std::size_t bytes = sizeof(float) + sizeof(std::int32_t) + sizeof(Token);
    return (static_cast<std::size_t>(PaddedVocabulary(a)) * bytes + 63) / 64 * 64;
}

std::int32_t SampleRow(const SampleArgs& a, std::int64_t row, float* weights) {
    const float* logits = a.logits + row * a.stride;
    const std::int64_t largest = TL_DISPATCH(ArgMax)(logits, a.vocabulary);
    const float temperature = a.temperature[row];
    if (!(temperature > 0.0F) || !std::isfinite(logits[largest])) {
        return static_cast<std::int32_t>(largest);
    }
    auto* buckets = reinterpret_cast<std::int32_t*>(weights + PaddedVocabulary(a));
    auto* tokens = reinterpret_cast<Token*>(buckets + PaddedVocabulary(a));
    TL_DISPATCH(Weigh)
    (logits, a.vocabulary, logits[largest], 1.0F / std::max(temperature, kMinTemperature),
     kBucketsPerUnit, kLastBucket, weights, buckets);
    Row tokens_of_row(logits, weights, buckets, tokens, a.vocabulary);
    Prefix kept = tokens_of_row.All();
    const std::int64_t top_k = a.top_k[row];
    if (top_k > 0 && top_k < a.vocabulary) kept = tokens_of_row.First(top_k);
    const Prefix of_top_k = kept;
    if (a.top_p[row] < 1.0F) {
        kept = tokens_of_row.Reaching(a.top_p[row] * of_top_k.weight, false, of_top_k);
    }
    if (a.min_p[row] > 0.0F) kept = tokens_of_row.Above(a.min_p[row], kept);
    const double drawn = UniformAt(a.seeds[row], a.positions[row]) * kept.weight;
    return tokens_of_row.Last(tokens_of_row.Reaching(drawn, true, kept));
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

// SPDX-License-Identifier: Apache-2.0

// What has been taken, or may not be: less than any score, and what is no number counts as the
// least.
constexpr float kTaken = -INFINITY;
constexpr float kLeast = -3.4e38F;

inline float AtLeast(float score) { return score > kLeast ? score : kLeast; }

inline Vec LoadScores(const float* from, std::int64_t i, std::int64_t count, float fill) {
    if (count - i >= kLanes) return Load(from + i);
    float lanes[kLanes];
    for (int lane = 0; lane < kLanes; ++lane)
        lanes[lane] = i + lane < count ? from[i + lane] : fill;
    return Load(lanes);
}

// The buffer is padded, so that its last vector may be stored whole.
inline void SoftmaxScores(const float* logits, std::int64_t count, float* scores) {
    Vec most = Set(-INFINITY);
    for (std::int64_t i = 0; i < count; i += kLanes) {
        most = Max(LoadScores(logits, i, count, -INFINITY), most);
    }
    const Vec top = Set(MaxLane(most));
    Vec sum = Zero();
    for (std::int64_t i = 0; i < count; i += kLanes) {
        const Vec p = Exp(Sub(LoadScores(logits, i, count, -INFINITY), top));
        Store(scores + i, p);
        sum = Add(sum, p);
    }
    const Vec total = Set(SumLanes(sum));
    for (std::int64_t i = 0; i < count; i += kLanes) {
        Store(scores + i, Div(Load(scores + i), total));
    }
}

inline void SigmoidScores(const float* logits, std::int64_t count, float* scores) {
    for (std::int64_t i = 0; i < count; i += kLanes) {
        Store(scores + i, Sigmoid(LoadScores(logits, i, count, 0.0F)));
    }
}

// The index of the largest, of equals the first.
inline std::int64_t IndexOfMost(const float* values, std::int64_t count) {
    std::int64_t best = 0;
    for (std::int64_t i = 1; i < count; ++i) {
        if (values[i] > values[best]) best = i;
    }
    return best;
}

inline float SumOfBest(const float* values, std::int64_t count, std::int64_t num_best) {
    float first = kTaken, second = kTaken;
    for (std::int64_t i = 0; i < count; ++i) {
        if (values[i] > first) {
            second = first;
            first = values[i];
        } else if (values[i] > second) {
            second = values[i];
        }
    }
    return num_best == 1 ? first : AtLeast(first + second);
}

// Leaves the experts of the best groups to choose from.
inline void KeepBestGroups(const RouteArgs& a, const RouteBuffers& b) {
    const std::int64_t size = a.num_experts / a.num_groups;
    for (std::int64_t g = 0; g < a.num_groups; ++g) {
        b.groups[g] = SumOfBest(b.choice + g * size, size, a.group_best);
    }
    for (std::int64_t i = 0; i < a.top_groups; ++i) {
        b.groups[IndexOfMost(b.groups, a.num_groups)] = kTaken;
    }
    for (std::int64_t g = 0; g < a.num_groups; ++g) {
        if (b.groups[g] == kTaken) continue;
        for (std::int64_t e = g * size; e < (g + 1) * size; ++e) b.choice[e] = kTaken;
    }
}

inline void RouteToken(const RouteArgs& a, const RouteBuffers& b, std::int64_t token) {
    const float* logits = a.logits + token * a.logits_stride;
    (a.is_sigmoid ? SigmoidScores : SoftmaxScores)(logits, a.num_experts, b.scores);
    for (std::int64_t e = 0; e < a.num_experts; ++e) {
        b.choice[e] = AtLeast(a.bias == nullptr ? b.scores[e] : b.scores[e] + a.bias[e]);
    }
    if (a.top_groups < a.num_groups) KeepBestGroups(a, b);
    std::int32_t* experts = a.experts + token * a.top_k;
    float* weights = a.weights + token * a.top_k;
    float sum = 0;
    for (std::int64_t i = 0; i < a.top_k; ++i) {
        const std::int64_t best = IndexOfMost(b.choice, a.num_experts);
        b.choice[best] = kTaken;
        experts[i] = static_cast<std::int32_t>(best);
        weights[i] = b.scores[best];
        sum += weights[i];
    }
    for (std::int64_t i = 0; i < a.top_k; ++i) {
        // Scores that all vanish stay zero.
        weights[i] = a.scale * (a.renormalises ? weights[i] / (sum + 1e-20F) : weights[i]);
    }
}

inline void RouteTokens(const RouteArgs& a, Worker& worker) {
    auto* memory = static_cast<float*>(a.scratch);
    const std::int64_t floats = RouteBuffers(a, memory).total;
    const RouteBuffers buffers(a, memory + worker.index() * floats);
    for (Piece rows = worker.TakeRows(a.num_tokens); rows.first < rows.last;
         rows = worker.TakeRows(a.num_tokens)) {
        for (std::int64_t t = rows.first; t < rows.last; ++t) RouteToken(a, buffers, t);
    }
}

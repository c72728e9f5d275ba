// SPDX-License-Identifier: Apache-2.0

// The first of the largest; NaN is passed over; 0 when nothing is finite or above minus infinity.
inline std::int64_t ArgMax(const float* x, std::int64_t count) {
    const std::int64_t full = count / kLanes * kLanes;
    Vec most = Set(-INFINITY);
    for (std::int64_t i = 0; i < full; i += kLanes) most = Max(Load(x + i), most);
    float largest = MaxLane(most);
    for (std::int64_t i = full; i < count; ++i) largest = x[i] > largest ? x[i] : largest;
    for (std::int64_t i = 0; i < count; ++i) {
        if (x[i] == largest) return largest == -INFINITY ? 0 : i;
    }
    return 0;
}

inline void WeighLanes(Vec x, Vec largest, Vec inverse_temperature, Vec buckets_per_unit,
                       Vec last_bucket, Vec* weight, IVec* bucket) {
    const Vec z = Mul(Sub(largest, x), inverse_temperature);
    // A NaN's comparison fails, which sends it to the last bucket, weightless.
    const Vec place = Mul(z, buckets_per_unit);
    *bucket = ToInts(IfLess(place, last_bucket, place, last_bucket));
    *weight = IfLess(place, last_bucket, Exp(Sub(Zero(), z)), Zero());
}

// weights[i] = e^-z, z = (largest - logits[i]) / temperature; buckets[i] = z in steps, at most the
// last.
inline void Weigh(const float* logits, std::int64_t count, float largest, float inverse_temperature,
                  int buckets_per_unit, int last_bucket, float* weights, std::int32_t* buckets) {
    const Vec top = Set(largest), inverse = Set(inverse_temperature);
    const Vec per_unit = Set(static_cast<float>(buckets_per_unit));
    const Vec last = Set(static_cast<float>(last_bucket));
    const std::int64_t full = count / kLanes * kLanes;
    Vec weight;
    IVec bucket;
    for (std::int64_t i = 0; i < full; i += kLanes) {
        WeighLanes(Load(logits + i), top, inverse, per_unit, last, &weight, &bucket);
        Store(weights + i, weight);
        Store(buckets + i, bucket);
    }
    if (full < count) {
        // The scratch is padded to whole registers.
        const Vec x = LoadN(logits + full, static_cast<int>(count - full));
        WeighLanes(x, top, inverse, per_unit, last, &weight, &bucket);
        Store(weights + full, weight);
        Store(buckets + full, bucket);
    }
}

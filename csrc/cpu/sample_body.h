// SPDX-License-Identifier: Apache-2.0

// The first of the largest; NaN is passed over; 0 when nothing is finite or above minus infinity.
inline std::int64_t ArgMax(const float* x, std::int64_t count) {
    const std::int64_t full = count / kLanes * kLanes;
    Vec most = Set(-INFINITY);
    for (std::int64_t i = 0; i < full; i += kLanes) most = Max(Load(x + i), most);
    float largest = MaxLane(most);
    for (std::int64_t i = full; i < count; ++i) largest = x[i] > largest ? x[i] : largest;
    if (largest == -INFINITY) return 0;
    const Vec below = Set(std::nextafter(largest, -INFINITY));
    std::int64_t first = 0;
    while (first < full && !AnyLess(below, Load(x + first))) first += kLanes;
    while (x[first] != largest) ++first;
    return first;
}

// Sixteen tokens of Weigh. Returns whether any is nearer than the last bucket, and adds the weights
// of those that are not to `far`.
inline bool WeighLanes(Vec x, const Weighing& a, std::int64_t at, Vec* far) {
    const Vec z = Mul(Sub(Set(a.largest), x), Set(a.inverse_temperature));
    const Vec place = Mul(z, Set(static_cast<float>(a.buckets_per_unit)));
    const Vec last = Set(static_cast<float>(a.last_bucket));
    // A NaN compares with nothing, which sends it to the last bucket, weightless.
    const Vec weight = IfLess(place, Set(INFINITY), Exp(Sub(Zero(), z)), Zero());
    Store(a.weights + at, weight);
    Store(a.buckets + at, ToInts(IfLess(place, last, place, last)));
    *far = Add(*far, IfLess(place, last, Zero(), weight));
    return AnyLess(place, last);
}

inline float Weigh(const Weighing& a) {
    const std::int64_t full = a.count / kLanes * kLanes;
    Vec far = Zero();
    for (std::int64_t i = 0; i < full; i += kLanes) {
        a.is_near[i / kLanes] = WeighLanes(Load(a.logits + i), a, i, &far);
    }
    if (full < a.count) {
        // The scratch is padded to whole registers; the lanes beyond the end weigh nothing.
        float lanes[kLanes];
        for (int i = 0; i < kLanes; ++i) lanes[i] = -INFINITY;
        for (std::int64_t i = full; i < a.count; ++i) lanes[i - full] = a.logits[i];
        a.is_near[full / kLanes] = WeighLanes(Load(lanes), a, full, &far);
    }
    return SumLanes(far);
}

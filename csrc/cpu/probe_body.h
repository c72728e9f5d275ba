// SPDX-License-Identifier: Apache-2.0

// Keeps the compiler from dropping what leads to x.
inline void Keep(const void* x) { asm volatile("" : : "r"(x) : "memory"); }

inline void ReadShare(const ReadProbe& probe, Worker& worker) {
    const std::int64_t num_lines = probe.num_bytes / 64;
    const std::int64_t first = num_lines * worker.index() / worker.count();
    const std::int64_t last = num_lines * (worker.index() + 1) / worker.count();
    Vec sums[4] = {Zero(), Zero(), Zero(), Zero()};
    for (std::int64_t i = first; i + 4 <= last; i += 4) {
        const auto* line = reinterpret_cast<const float*>(probe.memory + i * 64);
        for (int c = 0; c < 4; ++c) {
            Prefetch(line + c * kLanes + 1024);
            sums[c] = Add(sums[c], Load(line + c * kLanes));
        }
    }
    Keep(sums);
}

inline void FloatChains(const PeakProbe& probe) {
    Vec sums[kProbeChains];
    for (auto& sum : sums) sum = Set(1.0F);
    const Vec a = Set(0.999F), b = Set(1e-3F);
    for (std::int64_t i = 0; i < probe.num_rounds; ++i) {
        for (auto& sum : sums) sum = Fma(sum, a, b);
    }
    Keep(sums);
}

inline void IntChains(const PeakProbe& probe) {
    IVec sums[kProbeChains];
    for (auto& sum : sums) sum = ISet(0);
    std::uint8_t ones[64];
    for (auto& one : ones) one = 1;
    Keep(ones);
    const Bytes w = LoadBytes(ones);
    const std::int8_t x[4] = {1, -1, 1, -1};
    for (std::int64_t i = 0; i < probe.num_rounds; ++i) {
        for (auto& sum : sums) sum = DotSmall(sum, w, x);
    }
    Keep(sums);
}

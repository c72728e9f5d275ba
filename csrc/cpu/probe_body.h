// SPDX-License-Identifier: Apache-2.0

// Keeps the compiler from dropping what leads to x.
inline void Keep(const void* x) { asm volatile("" : : "r"(x) : "memory"); }

inline void ReadPieces(const ReadProbe& probe, Worker& worker) {
    Vec sums[4] = {Zero(), Zero(), Zero(), Zero()};
    for (std::int64_t at = worker.Next() * kReadPiece; at + kReadPiece <= probe.num_bytes;
         at = worker.Next() * kReadPiece) {
        const auto* piece = reinterpret_cast<const float*>(probe.memory + at);
        for (std::int64_t i = 0; i < kReadPiece / 4; i += 4 * kLanes) {
            for (int c = 0; c < 4; ++c) {
                Prefetch(piece + i + c * kLanes + 1024);
                sums[c] = Add(sums[c], Load(piece + i + c * kLanes));
            }
        }
    }
    Keep(sums);
}

inline void FloatChains(const PeakProbe& probe, Worker& worker) {
    Vec sums[kProbeChains];
    for (auto& sum : sums) sum = Set(1.0F);
    const Vec a = Set(0.999F), b = Set(1e-3F);
    while (worker.Next() < probe.num_pieces) {
        for (std::int64_t i = 0; i < kProbeRounds; ++i) {
            for (auto& sum : sums) sum = Fma(sum, a, b);
        }
    }
    Keep(sums);
}

inline void IntChains(const PeakProbe& probe, Worker& worker) {
    IVec sums[kProbeChains];
    for (auto& sum : sums) sum = ISet(0);
    std::uint8_t ones[64];
    for (auto& one : ones) one = 1;
    Keep(ones);
    const Bytes w = LoadBytes(ones);
    const std::int8_t x[4] = {1, -1, 1, -1};
    while (worker.Next() < probe.num_pieces) {
        for (std::int64_t i = 0; i < kProbeRounds; ++i) {
            for (auto& sum : sums) sum = DotSmall(sum, w, x);
        }
    }
    Keep(sums);
}

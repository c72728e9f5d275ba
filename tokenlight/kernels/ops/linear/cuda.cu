// SPDX-License-Identifier: Apache-2.0
// y = x W^T for up to 16 rows of x, at the speed that W comes from memory.
//
// A warp of the block does nothing but order stages of W into shared memory: 16 rows by 512 or 1024 of k,
// each row in one copy. It does not wait for the kernel before this one, since W does not depend on it: when
// x is there, the first stages are too. The other warps multiply, an eighth each: tensor cores take 16
// rows of W by up to 8 tokens, and since the sum over k may be in any order, 16 bytes of a row of W or
// of x are fragments as they lie. The warps' sums are added in the order of the warps. So a token's
// result depends on nothing but its own row and k.
#include "prelude.cuh"

struct LinearParams {
    const bf16* w;         // [n, k]
    const bf16* x;         // [m, k], rows x_stride apart
    const bf16* bias;      // [n] or null
    const bf16* residual;  // [m, n], rows residual_stride apart, or null
    const bf16* gain;      // [k]: the norm of x is taken first
    bf16* y;               // [m, n], or [m, n / 2] after silu_mul
    int n, k, m, x_stride, residual_stride;
    float eps;
};

constexpr int kWarps = 8;                   // that multiply

// What a warp takes of a stage: kChunks stretches of 32 of k.
template <int kChunks>
struct Stage {
    static constexpr int kWarpK = 32 * kChunks;
    static constexpr int kK = kWarps * kWarpK;
    static constexpr int kPitch = 2 * kK + 64;  // bytes: rows lie half a turn of the banks apart
    static constexpr int kBytes = 16 * kPitch;
};

// A block computes kTiles tiles of 16 rows of W, with kStages stages on their way.
template <int kTokenTiles, int kTiles, int kChunks, int kStages, bool kNorm, bool kSilu>
DEVICE void Linear(const LinearParams& p) {
    constexpr int kWarpK = Stage<kChunks>::kWarpK, kStageK = Stage<kChunks>::kK;
    constexpr int kPitch = Stage<kChunks>::kPitch, kStageBytes = Stage<kChunks>::kBytes;
    constexpr int kRows = 16 * kTiles, kTokens = 8 * kTokenTiles;
    constexpr int kOutRows = kSilu ? 16 : kRows;
    constexpr int kOutputs = (kOutRows * kTokens + 32 * kWarps - 1) / (32 * kWarps);
    static_assert(!kSilu || kTiles == 2, "a tile of gates and a tile of ups");
    static_assert(4 * kWarps * kRows * (kTokens + 1) <= kStages * kStageBytes);
    extern __shared__ __align__(128) unsigned char stages[];
    __shared__ u64 full[kStages], empty[kStages];
    __shared__ float squares[kWarps][kTokens];
    auto& sums = *(float(*)[kWarps][kRows][kTokens + 1]) stages;  // once all stages are used up

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int width = kSilu ? p.n / 2 : p.n;  // of y
    const int first = blockIdx.x * kOutRows;
    const int num_steps = (p.k + kStageK - 1) / kStageK;  // of k; kTiles stages each
    LetNextStart();
    if (threadIdx.x == 0) {
        for (int s = 0; s < kStages; ++s) {
            InitBarrier(full + s, 1);
            InitBarrier(empty + s, kWarps);
        }
        PublishBarriers();
    }
    __syncthreads();

    float acc[kTiles][kTokenTiles][4] = {};
    float square[kTokenTiles] = {};
    float added[kOutputs] = {};
    if (warp == kWarps) {
        // One lane: copies take uniform registers, which lanes that wait apart would mix up.
        if (lane == 0) {
            for (int i = 0; i < num_steps * kTiles; ++i) {
                const int tile = i % kTiles, at = i / kTiles * kStageK, stage = i % kStages;
                const int row = first + (kSilu ? 0 : 16 * tile);
                const u32 bytes = 2 * min(kStageK, p.k - at);
                const bf16* from = p.w + (size_t)(kSilu ? tile * width : 0) * p.k + at;
                WaitBarrier(empty + stage, i / kStages % 2 ^ 1);
                ArriveAndExpect(full + stage, 16 * bytes);
#pragma unroll
                for (int r = 0; r < 16; ++r)
                    CopyBulk(stages + stage * kStageBytes + r * kPitch,
                             from + (size_t)min(row + r, width - 1) * p.k, bytes, full + stage);
            }
        }
        __syncwarp();
    } else {
        WaitForInputs();
        const bf16* tokens[kTokenTiles];
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n)
            tokens[n] = p.x + (size_t)min(8 * n + g, p.m - 1) * p.x_stride + 8 * t;
        uint4 x[kTokenTiles][kChunks], next[kTokenTiles][kChunks];
        auto load_tokens = [&](uint4 (&to)[kTokenTiles][kChunks], int step) {
#pragma unroll
            for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
                for (int c = 0; c < kChunks; ++c) {
                    const int at = step * kStageK + warp * kWarpK + 32 * c;
                    to[n][c] = make_uint4(0, 0, 0, 0);
                    if (8 * n + g < p.m && at + 8 * t < p.k)
                        to[n][c] = LoadShared16(tokens[n] + at);
                }
        };
        constexpr bool kLoadsAhead = kTokenTiles == 1;  // registers allow no more
        load_tokens(x, 0);

        // What the last lines of the kernel add, fetched now: its latency would be bare there.
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) {
            const int place = threadIdx.x + i * 32 * kWarps;
            const int token = place / kOutRows, row = first + place % kOutRows;
            if (kSilu || token >= p.m || row >= width) continue;
            if (p.bias) added[i] = Widen(p.bias[row]);
            if (p.residual)
                added[i] += Widen(p.residual[(size_t)token * p.residual_stride + row]);
        }

        for (int step = 0; step < num_steps; ++step) {
            const int from = step * kStageK + warp * kWarpK;
            if (kLoadsAhead && step + 1 < num_steps) load_tokens(next, step + 1);
            if (kNorm) {
#pragma unroll
                for (int c = 0; c < kChunks; ++c) {
                    uint4 gain = make_uint4(0, 0, 0, 0);
                    if (from + 32 * c + 8 * t < p.k)
                        gain = LoadShared16(p.gain + from + 32 * c + 8 * t);
#pragma unroll
                    for (int n = 0; n < kTokenTiles; ++n) {
                        u32* pair = &x[n][c].x;
                        const u32* by = &gain.x;
#pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            const float low = Low(pair[j]), high = High(pair[j]);
                            square[n] = __fmaf_rn(low, low, __fmaf_rn(high, high, square[n]));
                            pair[j] = Multiply2(pair[j], by[j]);
                        }
                    }
                }
            }
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
                const int i = step * kTiles + tile, stage = i % kStages;
                const unsigned char* rows =
                    stages + stage * kStageBytes + g * kPitch + 2 * warp * kWarpK + 16 * t;
                WaitBarrier(full + stage, i / kStages % 2);
                uint4 a[kChunks], b[kChunks];
                u32 seen = 0;
#pragma unroll
                for (int c = 0; c < kChunks; ++c) {
                    a[c] = *(const uint4*)(rows + 64 * c);
                    b[c] = *(const uint4*)(rows + 8 * kPitch + 64 * c);
                    seen |= a[c].x ^ b[c].x;
                }
                __syncwarp();
                if (lane == 0) ArriveAfter(empty + stage, seen);
#pragma unroll
                for (int c = 0; c < kChunks; ++c) {
                    if (from + 32 * c + 8 * t >= p.k) a[c] = b[c] = make_uint4(0, 0, 0, 0);
#pragma unroll
                    for (int n = 0; n < kTokenTiles; ++n) {
                        Mma(acc[tile][n], a[c].x, b[c].x, a[c].y, b[c].y, x[n][c].x, x[n][c].y);
                        Mma(acc[tile][n], a[c].z, b[c].z, a[c].w, b[c].w, x[n][c].z, x[n][c].w);
                    }
                }
            }
            if (kLoadsAhead) {
#pragma unroll
                for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
                    for (int c = 0; c < kChunks; ++c) x[n][c] = next[n][c];
            } else if (step + 1 < num_steps) {
                load_tokens(x, step + 1);
            }
        }
        if (kNorm) {
#pragma unroll
            for (int n = 0; n < kTokenTiles; ++n) {
                square[n] += __shfl_xor_sync(FULL_WARP, square[n], 1);
                square[n] += __shfl_xor_sync(FULL_WARP, square[n], 2);
                if (t == 0) squares[warp][8 * n + g] = square[n];
            }
        }
    }
    __syncthreads();
    if (warp == kWarps) return;
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
            for (int j = 0; j < 4; ++j)
                sums[warp][16 * i + 8 * (j / 2) + g][8 * n + 2 * t + j % 2] = acc[i][n][j];
    SyncSome<1, 32 * kWarps>();

#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
        const int place = threadIdx.x + i * 32 * kWarps;
        const int token = place / kOutRows, local = place % kOutRows, row = first + local;
        if (token >= p.m || row >= width) continue;
        float scale = 1.0f;
        if (kNorm) {
            float total = 0.0f;
#pragma unroll
            for (int v = 0; v < kWarps; ++v) total += squares[v][token];
            scale = rsqrtf(total / (float)p.k + p.eps);
        }
        float y = 0.0f;
#pragma unroll
        for (int v = 0; v < kWarps; ++v) y += sums[v][local][token];
        y *= scale;
        if (kSilu) {
            float up = 0.0f;
#pragma unroll
            for (int v = 0; v < kWarps; ++v) up += sums[v][16 + local][token];
            up *= scale;
            if (p.bias) {
                y += Widen(p.bias[row]);
                up += Widen(p.bias[width + row]);
            }
            y = Silu(y) * up;
        } else {
            y += added[i];
        }
        p.y[(size_t)token * width + row] = Narrow(y);
    }
}

#define LINEAR(name, token_tiles, tiles, chunks, stages, norm, silu, blocks)                \
    extern "C" __global__ void __launch_bounds__(32 * (kWarps + 1), blocks)                 \
        name(const __grid_constant__ LinearParams p) {                                      \
        Linear<token_tiles, tiles, chunks, stages, norm, silu>(p);                          \
    }

// One order of sums per operation: chunks are the same whatever the rows of x.
LINEAR(linear_8, 1, 1, 4, 3, false, false, 2)
LINEAR(linear_16, 2, 1, 4, 3, false, false, 2)
LINEAR(norm_linear_8, 1, 1, 2, 4, true, false, 3)
LINEAR(norm_linear_16, 2, 1, 2, 4, true, false, 3)
LINEAR(linear_silu_mul_8, 1, 2, 2, 4, false, true, 3)
LINEAR(linear_silu_mul_16, 2, 2, 2, 4, false, true, 3)
LINEAR(norm_linear_silu_mul_8, 1, 2, 2, 4, true, true, 3)
LINEAR(norm_linear_silu_mul_16, 2, 2, 2, 4, true, true, 3)

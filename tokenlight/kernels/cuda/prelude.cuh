// SPDX-License-Identifier: Apache-2.0
// What every CUDA source of this package starts with. No header is included, so that NVRTC needs no
// include path: bfloat16 is its bits, and what C++ cannot say is PTX.
#pragma once

typedef unsigned short bf16;  // the bits of a bfloat16
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE __device__ __forceinline__
#define FULL_WARP 0xffffffffu

constexpr float kLog2e = 1.4426950408889634f;
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

// ---- dependent launch: a kernel starts while the one before it drains ------------------------------

// Lets the next kernel of the stream start; it sees nothing of ours before its own WaitForInputs.
DEVICE void LetNextStart() { asm volatile("griddepcontrol.launch_dependents;"); }
// After this, all that earlier kernels wrote can be read. Weights may be read before it.
DEVICE void WaitForInputs() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// ---- memory --------------------------------------------------------------------------------------

// Bytes that are read once in a launch, and that no kernel of the graph writes.
DEVICE uint4 LoadStream(const void* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
// Bytes that an earlier kernel wrote and that are read once: the cache of keys and values.
DEVICE uint4 LoadOnce(const void* p) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
// Bytes that other blocks of the same multiprocessor read too: activations.
DEVICE uint4 LoadShared16(const void* p) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

// ---- blocks and parts of them ----------------------------------------------------------------------

// A barrier of so many threads; each number is one.
template <int kNumber, int kNumThreads>
DEVICE void SyncSome() {
    asm volatile("bar.sync %0, %1;" ::"n"(kNumber), "n"(kNumThreads) : "memory");
}
// Counts what a block has done; what it wrote before can be read by whoever sees the count.
DEVICE int TakeTicket(int* count) {
    int before;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before)
                 : "l"(count)
                 : "memory");
    return before;
}

// Counts and orders nothing else. The thread goes on until it uses the number; of an atomic addition
// the assembler would make one for all lanes, and they would wait for it at once.
DEVICE int TakeNumber(int* count) {
    int before;
    asm volatile("atom.inc.relaxed.gpu.global.u32 %0, [%1], 0x7fffffff;" : "=r"(before)
                 : "l"(count)
                 : "memory");
    return before;
}

// ---- bulk copies to shared memory, which report to a barrier there ----------------------------------

DEVICE u32 SharedAddress(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void InitBarrier(u64* barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
                 "r"(arrivals));
}
DEVICE void PublishBarriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void Arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier))
                 : "memory");
}
// Arrives once `seen` is known. An arrival overtakes the loads from shared memory before it when the
// load unit is busy, and a copy then overwrites what they were to read: so it is made to need them.
DEVICE void ArriveAfter(u64* barrier, u32 seen) {
    asm volatile(
        "{\n.reg .pred zero;\nsetp.eq.u32 zero, %1, 0;\n"
        "@zero mbarrier.arrive.shared::cta.b64 _, [%0];\n"
        "@!zero mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(SharedAddress(barrier)),
        "r"(seen)
        : "memory");
}
DEVICE void ArriveAndExpect(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     SharedAddress(barrier)),
                 "r"(bytes)
                 : "memory");
}
// Until the phase of this parity is over; of a fresh barrier, the phase before the first is.
DEVICE void WaitBarrier(u64* barrier, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(SharedAddress(barrier)),
        "r"(parity)
        : "memory");
}
// Bytes and both addresses are multiples of 16.
DEVICE void CopyBulk(void* to, const void* from, u32 bytes, u64* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            SharedAddress(to)),
        "l"(from), "r"(bytes), "r"(SharedAddress(barrier))
        : "memory");
}
// Of bytes that nobody reads again soon: they leave the cache before others do.
DEVICE void CopyBulkOnce(void* to, const void* from, u32 bytes, u64* barrier) {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], "
        "%2, [%3], %4;" ::"r"(SharedAddress(to)),
        "l"(from), "r"(bytes), "r"(SharedAddress(barrier)), "l"(policy)
        : "memory");
}

// ---- clusters of blocks ------------------------------------------------------------------------------

DEVICE u32 Rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
DEVICE u32 Remote(const void* p, u32 rank) {  // the address of the same variable in another block
    u32 address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(SharedAddress(p)), "r"(rank));
    return address;
}

// Memory of the others can be written to once all have begun to meet and one has waited for it.
DEVICE void BeginToMeet() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
DEVICE void MeetCluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// Stores that tell a barrier of the block that they reach.
DEVICE void Send(u32 to, float4 v, u32 barrier) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, "
        "[%5];" ::"r"(to),
        "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
        : "memory");
}
DEVICE void Send(u32 to, float2 v, u32 barrier) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1,%2}, [%3];" ::"r"(to),
        "f"(v.x), "f"(v.y), "r"(barrier)
        : "memory");
}

// ---- bfloat16 --------------------------------------------------------------------------------------

DEVICE float Low(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float High(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
DEVICE float Widen(bf16 x) { return __uint_as_float((u32)x << 16); }
DEVICE u32 Pack(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE bf16 Narrow(float x) { return (bf16)(Pack(x, 0.0f) & 0xffffu); }
DEVICE u32 Multiply2(u32 a, u32 b) {
    u32 product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

// ---- arithmetic ------------------------------------------------------------------------------------

DEVICE float Exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float Silu(float x) { return x / (1.0f + Exp2(-x * kLog2e)); }

// d += a b, a 16x16 (row major), b 16x8 (column major), in the fragments of mma.m16n8k16: of lane
// (g, t) = (lane / 4, lane % 4), a holds rows g and g + 8, b column g, d columns 2t and 2t + 1.
DEVICE void Mma(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The 8x8 matrix whose rows are spread over groups of four lanes, transposed.
DEVICE u32 Transpose8x8(u32 pair) {
    u32 out;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
    return out;
}

DEVICE float WarpSum(float x) {
#pragma unroll
    for (int step = 16; step; step >>= 1) x += __shfl_xor_sync(FULL_WARP, x, step);
    return x;
}

// SPDX-License-Identifier: Apache-2.0
#include "cpu/probe.h"

#define TL_BODY "cpu/probe_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

void ReadAll(const ReadProbe& probe, Worker& worker) { TL_DISPATCH(ReadPieces)(probe, worker); }
void MultiplyFloats(const PeakProbe& probe, Worker& worker) {
    TL_DISPATCH(FloatChains)(probe, worker);
}
void MultiplyInts(const PeakProbe& probe, Worker& worker) { TL_DISPATCH(IntChains)(probe, worker); }

}  // namespace tokenlight::cpu

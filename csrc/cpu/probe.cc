// SPDX-License-Identifier: Apache-2.0
#include "cpu/probe.h"

#define TL_BODY "cpu/probe_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

void ReadAll(const ReadProbe& probe, Worker& worker) { TL_DISPATCH(ReadShare)(probe, worker); }
void MultiplyFloats(const PeakProbe& probe, Worker&) { TL_DISPATCH(FloatChains)(probe); }
void MultiplyInts(const PeakProbe& probe, Worker&) { TL_DISPATCH(IntChains)(probe); }

}  // namespace tokenlight::cpu

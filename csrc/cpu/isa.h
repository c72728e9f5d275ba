// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace tokenlight::cpu {

// Instruction sets that kernels are compiled for, each including the ones before.
// kAvx2: with FMA and F16C. kAvx512: F, BW, DQ, VL and VNNI.
enum class Isa { kPortable = 0, kAvx2 = 1, kAvx512 = 2 };

// The best that this machine runs, by cpuid; or a lower one that a test chose.
Isa ActiveIsa();

// Throws std::invalid_argument when this machine does not run it.
void SetActiveIsa(Isa isa);

Isa BestIsa();

const char* IsaName(Isa isa);

}  // namespace tokenlight::cpu

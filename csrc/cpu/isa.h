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

// Whether vectors are added beside whole-number products at no cost, as on AMD's cores with
// kAvx512: half the products for twice as many additions then pays. The bits are the same. A test
// may choose.
bool AddsBesideProducts();
void SetAddsBesideProducts(bool adds);

const char* IsaName(Isa isa);

}  // namespace tokenlight::cpu

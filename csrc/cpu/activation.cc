// SPDX-License-Identifier: Apache-2.0
#include "cpu/activation.h"

#define TL_BODY "cpu/activation_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

void SiluMul(const ActivationArgs& args, Worker& worker) { TL_DISPATCH(SiluRows)(args, worker); }
void GeluTanhMul(const ActivationArgs& args, Worker& worker) {
    TL_DISPATCH(GeluTanhRows)(args, worker);
}
void Softcap(const ActivationArgs& args, Worker& worker) { TL_DISPATCH(CapRows)(args, worker); }

}  // namespace tokenlight::cpu

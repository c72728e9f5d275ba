// SPDX-License-Identifier: Apache-2.0
#include "cpu/row_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "cpu/rms_norm.h"

#define TL_BODY "cpu/row_ops_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

void Add(const AddArgs& args, Worker& worker) { TL_DISPATCH(AddRows)(args, worker); }

void AddRmsNorm(const AddRmsNormArgs& args, Worker& worker) {
    TL_DISPATCH(AddRmsNormRows)(args, worker);
}

void CheckRows(const CopyRowsArgs& args) {
    if (args.rows == nullptr) return;
    for (std::int64_t i = 0; i < args.num_rows; ++i) {
        if (args.rows[i] < 0 || args.rows[i] >= args.num_x_rows) {
            throw std::out_of_range("row " + std::to_string(args.rows[i]) + " is not in [0, " +
                                    std::to_string(args.num_x_rows) + ")");
        }
    }
}

void CopyRows(const CopyRowsArgs& args, Worker& worker) {
    for (Piece rows = worker.TakeRows(args.num_rows); rows.first < rows.last;
         rows = worker.TakeRows(args.num_rows)) {
        for (std::int64_t row = rows.first; row < rows.last; ++row) {
            const std::int64_t from = args.rows == nullptr ? row : args.rows[row];
            std::memcpy(args.out + row * args.out_stride, args.x + from * args.x_stride,
                        static_cast<std::size_t>(args.width) * sizeof(float));
        }
    }
}

void RopeAngles(const RopeAnglesArgs& args, Worker& worker) {
    for (Piece rows = worker.TakeRows(args.num_tokens); rows.first < rows.last;
         rows = worker.TakeRows(args.num_tokens)) {
        for (std::int64_t token = rows.first; token < rows.last; ++token) {
            float* cos = args.out + token * 2 * args.num_frequencies;
            float* sin = cos + args.num_frequencies;
            for (std::int64_t i = 0; i < args.num_frequencies; ++i) {
                const float angle = static_cast<float>(args.positions[token]) * args.frequencies[i];
                cos[i] = std::cos(angle) * args.magnitude;
                sin[i] = std::sin(angle) * args.magnitude;
            }
        }
    }
}

}  // namespace tokenlight::cpu

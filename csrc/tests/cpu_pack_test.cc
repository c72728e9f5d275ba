// SPDX-License-Identifier: Apache-2.0
// Packing beside PutRow, from rows that lie apart and end where their memory does; in a queue,
// beside packing at once.
#include <cstring>
#include <memory>
#include <stdexcept>

#include "cpu/pack_queue.h"
#include "tests/cpu_check.h"

namespace tokenlight::cpu {
namespace {

struct Format {
    WeightFormat format;
    int file_bytes;   // of a block
    bool is_ordered;  // whether the file's blocks have the order of their sections
};

constexpr Format kFormats[] = {
    {WeightFormat::kQ4_0, 18, true},  {WeightFormat::kQ4_1, 20, true},
    {WeightFormat::kQ5_0, 22, true},  {WeightFormat::kQ5_1, 24, true},
    {WeightFormat::kIq4Nl, 18, true}, {WeightFormat::kMxfp4, 17, true},
    {WeightFormat::kQ8_0, 34, false}, {WeightFormat::kQ2K, 84, false},
    {WeightFormat::kQ3K, 110, false}, {WeightFormat::kQ4K, 144, false},
    {WeightFormat::kQ5K, 176, false}, {WeightFormat::kQ6K, 210, false},
};

void TestPack(const Format& f, int num_rows, int num_blocks) {
    const BlockLayout layout = LayoutOf(f.format);
    const auto row_bytes = static_cast<std::size_t>(num_blocks * f.file_bytes);
    std::vector<std::unique_ptr<std::uint8_t[]>> rows;
    std::vector<const std::uint8_t*> addresses;
    for (int row = 0; row < num_rows; ++row) {
        rows.push_back(std::make_unique<std::uint8_t[]>(row_bytes));
        for (std::size_t i = 0; i < row_bytes; ++i) {
            rows.back()[i] = static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(row) * 13);
        }
        addresses.push_back(rows.back().get());
    }
    const auto packed_bytes = static_cast<std::size_t>(num_blocks * layout.Bytes());
    std::vector<std::uint8_t> out(packed_bytes * rows.size(), 0xEE);
    const PackArgs args{out.data(), addresses.data(), num_rows, num_blocks, f.format};
    CheckPack(args);
    ThreadPool::Get().Run(Pack, args, 2);
    if (!f.is_ordered) return;  // tests/kernels/test_formats.py has these, the others too
    std::vector<std::uint8_t> want(out.size());
    const int full = num_rows / kTileRows * kTileRows;
    for (int row = 0; row < num_rows; ++row) {
        for (int b = 0; b < num_blocks; ++b) {
            const std::uint8_t* block = addresses[static_cast<std::size_t>(row)] + b * f.file_bytes;
            if (row < full) {
                PutRow(layout, block, row % kTileRows,
                       want.data() + row / kTileRows * kTileRows * packed_bytes +
                           b * kTileRows * layout.Bytes());
            } else {
                std::memcpy(
                    want.data() + static_cast<std::size_t>(row) * packed_bytes + b * layout.Bytes(),
                    block, static_cast<std::size_t>(layout.Bytes()));
            }
        }
    }
    CheckTrue(out == want, "packed as PutRow does");
}

// Rows, and where they are packed to: at once and through a queue.
struct Weight {
    Weight(const Format& f, int num_rows, int num_blocks)
        : format(f.format), bytes(static_cast<std::size_t>(num_rows * num_blocks * f.file_bytes)) {
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 31);
        for (int row = 0; row < num_rows; ++row) {
            rows.push_back(bytes.data() + row * num_blocks * f.file_bytes);
        }
        at_once.resize(rows.size() *
                       static_cast<std::size_t>(num_blocks * LayoutOf(format).Bytes()));
        queued.resize(at_once.size());
        const PackArgs args{at_once.data(), rows.data(), num_rows, num_blocks, format};
        ThreadPool::Get().Run(Pack, args, 1);
    }
    WeightFormat format;
    std::vector<std::uint8_t> bytes;
    std::vector<const std::uint8_t*> rows;
    std::vector<std::uint8_t> at_once;
    std::vector<std::uint8_t> queued;
};

void TestQueue(int num_threads) {
    constexpr int kBlocks = 3;
    ThreadPool::Get().SetNumThreads(num_threads);
    std::vector<Weight> weights;
    for (const Format& f : kFormats) {
        for (const int num_rows : {1, 16, 37, 1024}) weights.emplace_back(f, num_rows, kBlocks);
    }
    PackQueue queue;
    queue.Finish();
    // Half of them, the rest once those are done, and some that only the destructor waits for.
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (i == weights.size() / 2) queue.Finish();
        queue.Add(weights[i].queued.data(), weights[i].rows, kBlocks, weights[i].format);
    }
    queue.Finish();
    queue.Finish();
    for (const Weight& w : weights) CheckTrue(w.queued == w.at_once, "queued as packed at once");
    for (Weight& w : weights) w.queued.assign(w.queued.size(), 0xEE);
    {
        PackQueue left;
        for (Weight& w : weights) left.Add(w.queued.data(), w.rows, kBlocks, w.format);
    }
    for (const Weight& w : weights)
        CheckTrue(w.queued == w.at_once, "a queue that is left is done");
    bool has_thrown = false;
    try {
        queue.Add(nullptr, {}, 0, WeightFormat::kF32);
    } catch (const std::invalid_argument&) {
        has_thrown = true;
    }
    CheckTrue(has_thrown, "dense weights are refused at once");
}

void TestAll() {
    for (const int num_threads : {1, 2, 3}) TestQueue(num_threads);
    for (const Format& f : kFormats) {
        for (const int num_rows : {1, 16, 37}) {
            for (const int num_blocks : {1, 3}) TestPack(f, num_rows, num_blocks);
        }
    }
    bool has_thrown = false;
    try {
        CheckPack(PackArgs{nullptr, nullptr, 0, 0, WeightFormat::kBf16});
    } catch (const std::invalid_argument&) {
        has_thrown = true;
    }
    CheckTrue(has_thrown, "dense weights are refused");
}

}  // namespace
}  // namespace tokenlight::cpu

int main() {
    tokenlight::cpu::TestAll();
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "tests/shadow.h"

#include <algorithm>

#include "control/holdings.h"

namespace tokenlight::control {
namespace {

std::uint64_t Mix(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

// The true window, whatever the scheduler believes.
std::int32_t FirstVisible(const GroupConfig& group, std::int32_t position) {
    if (group.kind != GroupKind::kSlidingWindow) return 0;
    return std::max(0, position - group.window_tokens + 1);
}

}  // namespace

std::uint64_t DigestAfter(std::uint64_t digest, std::int32_t token) {
    return Mix(digest * 31 + static_cast<std::uint64_t>(token) + 0x9e3779b97f4a7c15ULL);
}

std::int32_t NextToken(std::uint64_t digest) { return static_cast<std::int32_t>(digest % 3); }

std::uint64_t WorldRequest::DigestStart() const {
    std::uint64_t digest = 1;
    for (const char c : salt) digest = DigestAfter(digest, c);
    return digest;
}

void Answer(WorldRequest& request) {
    std::uint64_t digest = request.DigestStart();
    for (const std::int32_t token : request.prompt) digest = DigestAfter(digest, token);
    for (std::int32_t i = 0; i < request.max_new_tokens; ++i) {
        request.answer.push_back(NextToken(digest));
        digest = DigestAfter(digest, request.answer.back());
    }
}

ShadowDevice::ShadowDevice(const Config& config, const std::vector<WorldRequest>& requests)
    : config_(config),
      requests_(requests),
      host_(static_cast<std::size_t>(config.num_host_blocks * config.block_tokens), 0),
      last_sampled_(static_cast<std::size_t>(config.max_num_requests), 0) {
    for (const GroupConfig& group : config.groups) {
        kv_.emplace_back(static_cast<std::size_t>(group.num_blocks * config.block_tokens), 0);
    }
}

std::uint64_t& ShadowDevice::Cell(std::size_t group, std::int32_t block, std::int32_t offset) {
    static std::uint64_t nowhere = 0;
    if (block < 0 || block >= config_.groups[group].num_blocks) {
        Complain("a plan names block " + std::to_string(block) + ", which does not exist");
        return nowhere;
    }
    return kv_[group][static_cast<std::size_t>(block * config_.block_tokens + offset)];
}

void ShadowDevice::Accept(const StepPlan& plan, const Scheduler& scheduler) {
    Planned step{.plan = plan, .tables = {}, .read = {}, .written = {}};
    if (plan.num_tokens() > config_.max_step_tokens) Complain("a step passes its budget of tokens");
    for (std::int32_t row = 0; row < plan.num_requests(); ++row) {
        const auto r = static_cast<std::size_t>(row);
        if (plan.query_starts[r + 1] <= plan.query_starts[r]) Complain("a row computes nothing");
        for (const Planned& earlier : steps_) {
            for (std::size_t e = 0; e < earlier.plan.slots.size(); ++e) {
                if (earlier.plan.slots[e] == plan.slots[r] &&
                    earlier.plan.request_ids[e] != plan.request_ids[r]) {
                    Complain("a slot changes hands while a step still names it");
                }
            }
        }
    }
    for (const CacheGroup& group : scheduler.groups()) {
        std::vector<std::int32_t>& table = step.tables.emplace_back();
        for (const std::int32_t slot : plan.slots) {
            for (std::int32_t column = 0; column < group.table.num_columns(); ++column) {
                table.push_back(group.table.at(SlotId{slot}, column));
            }
        }
    }
    NoteUse(step, scheduler);
    for (const Planned& earlier : steps_) {
        for (const auto& block : step.written) {
            // The same request's next tokens may go to the block that its last went to; anyone
            // else's may not.
            if (!earlier.written.contains(block) && earlier.read.contains(block)) {
                Complain("a block is written while an earlier step still reads it");
            }
        }
    }
    steps_.push_back(std::move(step));
}

void ShadowDevice::NoteUse(Planned& step, const Scheduler& scheduler) {
    const StepPlan& plan = step.plan;
    for (std::size_t r = 0; r < plan.slots.size(); ++r) {
        const std::int32_t end = plan.kv_lens[r];
        const std::int32_t start = end - (plan.query_starts[r + 1] - plan.query_starts[r]);
        std::size_t state_index = 0;
        std::size_t num_states = 0;
        for (const GroupConfig& group : config_.groups)
            num_states += group.kind == GroupKind::kRecurrent;
        for (std::size_t g = 0; g < config_.groups.size(); ++g) {
            if (config_.groups[g].kind == GroupKind::kRecurrent) {
                const std::size_t at = (r * num_states + state_index++) * 2;
                if (plan.state_blocks[at] >= 0) step.read.insert({g, plan.state_blocks[at]});
                step.written.insert({g, plan.state_blocks[at + 1]});
                continue;
            }
            const std::int32_t columns = scheduler.groups()[g].table.num_columns();
            const std::int32_t first =
                FirstVisible(config_.groups[g], start) / config_.block_tokens;
            for (std::int32_t column = first; column * config_.block_tokens < end; ++column) {
                const std::int32_t block = step.tables[g][r * static_cast<std::size_t>(columns) +
                                                          static_cast<std::size_t>(column)];
                const bool is_written = (column + 1) * config_.block_tokens > start;
                (is_written ? step.written : step.read).insert({g, block});
            }
        }
    }
    for (const BlockCopy& copy : plan.copies) step.read.insert({0, copy.from_block});
}

std::uint64_t ShadowDevice::ReadBefore(const Planned& step, std::size_t row,
                                       std::int32_t position) {
    const auto id = static_cast<std::size_t>(step.plan.request_ids[row]);
    std::uint64_t digest = requests_[id].DigestStart();
    if (position == 0) return digest;
    std::size_t state_index = 0;
    const std::size_t num_states = step.plan.state_blocks.size() / 2 / step.plan.slots.size();
    const std::int32_t start =
        step.plan.kv_lens[row] - (step.plan.query_starts[row + 1] - step.plan.query_starts[row]);
    for (std::size_t g = 0; g < config_.groups.size(); ++g) {
        std::uint64_t found = 0;
        if (config_.groups[g].kind == GroupKind::kRecurrent) {
            const std::size_t at = (row * num_states + state_index++) * 2;
            found = Cell(g, step.plan.state_blocks[position == start ? at : at + 1], 0);
        } else {
            const std::size_t columns = step.tables[g].size() / step.plan.slots.size();
            const auto column = static_cast<std::size_t>((position - 1) / config_.block_tokens);
            found = Cell(g, step.tables[g][row * columns + column],
                         (position - 1) % config_.block_tokens);
        }
        if (g > 0 && found != digest)
            Complain("two cache groups disagree on what precedes a token");
        digest = found;
    }
    // A query sees all of its window, not only the token before it.
    for (std::size_t g = 0; g < config_.groups.size(); ++g) {
        if (config_.groups[g].kind == GroupKind::kRecurrent) continue;
        const std::size_t columns = step.tables[g].size() / step.plan.slots.size();
        std::uint64_t expected = requests_[id].DigestStart();
        std::vector<std::int32_t> tokens = requests_[id].prompt;
        tokens.insert(tokens.end(), requests_[id].answer.begin(), requests_[id].answer.end());
        for (std::int32_t p = 0; p < position; ++p) {
            expected = DigestAfter(expected, tokens[static_cast<std::size_t>(p)]);
            if (p < FirstVisible(config_.groups[g], position)) continue;
            // Behind the first rejected draft a row's inputs are not the answer's: nothing there is
            // kept.
            const auto column = static_cast<std::size_t>(p / config_.block_tokens);
            const std::int32_t block = step.tables[g][row * columns + column];
            if (p < start && Cell(g, block, p % config_.block_tokens) != expected) {
                Complain("request " + std::to_string(id) + " reads KV at " + std::to_string(p) +
                         " that is not its own");
            }
        }
    }
    return digest;
}

void ShadowDevice::Write(const Planned& step, std::size_t row, std::int32_t position,
                         std::uint64_t digest) {
    std::size_t state_index = 0;
    const std::size_t num_states = step.plan.state_blocks.size() / 2 / step.plan.slots.size();
    for (std::size_t g = 0; g < config_.groups.size(); ++g) {
        if (config_.groups[g].kind == GroupKind::kRecurrent) {
            const std::size_t at = (row * num_states + state_index++) * 2;
            Cell(g, step.plan.state_blocks[at + 1], 0) = digest;
            continue;
        }
        const std::size_t columns = step.tables[g].size() / step.plan.slots.size();
        const auto column = static_cast<std::size_t>(position / config_.block_tokens);
        Cell(g, step.tables[g][row * columns + column], position % config_.block_tokens) = digest;
    }
}

std::vector<std::int32_t> ShadowDevice::RunOldest() {
    const Planned& step = steps_.front();
    const StepPlan& plan = step.plan;
    for (const BlockCopy& copy : plan.copies) {
        for (std::int32_t i = 0; i < copy.num_tokens; ++i) {
            Cell(0, copy.to_block, i) = Cell(0, copy.from_block, i);
        }
    }
    std::vector<std::uint64_t> digests(plan.token_ids.size());
    for (std::size_t r = 0; r < plan.slots.size(); ++r) {
        for (std::int32_t t = plan.query_starts[r]; t < plan.query_starts[r + 1]; ++t) {
            const auto at = static_cast<std::size_t>(t);
            std::int32_t token = plan.token_ids[at];
            if (token == StepPlan::kOnDevice)
                token = last_sampled_[static_cast<std::size_t>(plan.slots[r])];
            digests[at] = DigestAfter(ReadBefore(step, r, plan.positions[at]), token);
            Write(step, r, plan.positions[at], digests[at]);
        }
    }
    std::vector<std::int32_t> sampled;
    for (std::size_t s = 0; s < plan.sampled_rows.size(); ++s) {
        sampled.push_back(NextToken(digests[static_cast<std::size_t>(plan.sampled_rows[s])]));
        const auto row = static_cast<std::size_t>(plan.sampled_requests[s]);
        last_sampled_[static_cast<std::size_t>(plan.slots[row])] = sampled.back();
    }
    return sampled;
}

std::vector<std::int32_t> ShadowDevice::Accepted(const std::vector<std::int32_t>& sampled) const {
    const StepPlan& plan = steps_.front().plan;
    std::vector<std::int32_t> accepted;
    bool all_stand = true;
    for (std::size_t s = 0; s < sampled.size(); ++s) {
        if (s == 0 || plan.sampled_requests[s] != plan.sampled_requests[s - 1]) {
            accepted.push_back(1);
            all_stand = true;
            continue;
        }
        all_stand &=
            plan.token_ids[static_cast<std::size_t>(plan.sampled_rows[s])] == sampled[s - 1];
        accepted.back() += all_stand ? 1 : 0;
    }
    return accepted;
}

void ShadowDevice::RunCopy(std::size_t index, bool has_succeeded) {
    constexpr std::uint64_t kJunk = 0xdead;
    for (const CopyRow& row : copies_[index].rows) {
        for (std::int32_t i = 0; i < config_.block_tokens; ++i) {
            std::uint64_t& host =
                host_[static_cast<std::size_t>(row.host_block * config_.block_tokens + i)];
            std::uint64_t& device = Cell(0, row.device_block, i);
            (row.is_store == 1 ? host : device) =
                has_succeeded ? (row.is_store == 1 ? device : host) : kJunk;
        }
    }
    copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(index));
}

bool ShadowDevice::HostHolds(std::int32_t block, std::uint64_t start,
                             const std::vector<std::int32_t>& tokens) const {
    std::uint64_t digest = start;
    const std::size_t first = tokens.size() - static_cast<std::size_t>(config_.block_tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        digest = DigestAfter(digest, tokens[i]);
        const std::size_t at = static_cast<std::size_t>(block * config_.block_tokens) + i - first;
        if (i >= first && host_[at] != digest) return false;
    }
    return true;
}

bool ShadowDevice::Holds(std::size_t group, std::int32_t block, std::uint64_t start,
                         const std::vector<std::int32_t>& tokens) const {
    std::uint64_t digest = start;
    const std::size_t first = tokens.size() - static_cast<std::size_t>(config_.block_tokens);
    const auto base = static_cast<std::size_t>(block * config_.block_tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        digest = DigestAfter(digest, tokens[i]);
        if (config_.groups[group].kind == GroupKind::kRecurrent) continue;
        if (i >= first && kv_[group][base + i - first] != digest) return false;
    }
    return config_.groups[group].kind != GroupKind::kRecurrent || kv_[group][base] == digest;
}

}  // namespace tokenlight::control

// SPDX-License-Identifier: Apache-2.0
// What must hold in every state of every world, and what makes two states the same.
#include <algorithm>
#include <map>
#include <span>

#include "tests/inspector.h"
#include "tests/world.h"

namespace tokenlight::control {
namespace {

// Names things in the order in which they are first met.
class Renamer {
  public:
    std::int32_t operator()(std::size_t group, std::int32_t block) {
        return names_.try_emplace({group, block}, static_cast<std::int32_t>(names_.size()))
            .first->second;
    }

  private:
    std::map<std::pair<std::size_t, std::int32_t>, std::int32_t> names_;
};

class Writer {
  public:
    void Put(std::int64_t value) {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
        bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
    }
    void Put(const Hash128& key) {
        Put(static_cast<std::int64_t>(key.low));
        Put(static_cast<std::int64_t>(key.high));
    }
    [[nodiscard]] Hash128 Digest() const { return SipHash128<1, 3>(HashKey{7}, bytes_); }

  private:
    std::vector<std::uint8_t> bytes_;
};

}  // namespace

void Run::Check() {
    if (complaint_.empty()) complaint_ = device_->complaint();
    if (!complaint_.empty()) return;
    CheckPools();
    CheckInFlight();
    CheckHost();
    const Inspector inspector{*scheduler_};
    inspector.EachResident([&](const Resident& resident, char) {
        if (resident.request->num_preemptions > world_.config.max_preemptions) {
            Complain("a request is preempted more often than it may be");
        }
        if (resident.progress.num_sampling > 0 && !resident.request->draft_ids.empty()) {
            Complain("drafts wait behind a step that samples");
        }
    });
    inspector.EachWaiting([&](const Request& request) {
        if (request.num_preemptions > world_.config.max_preemptions) {
            Complain("a request is preempted more often than it may be");
        }
    });
}

void Run::CheckPools() {
    const Inspector inspector{*scheduler_};
    const std::size_t num_groups = world_.config.groups.size();
    std::vector<std::vector<std::int32_t>> num_owners;
    std::vector<std::int32_t> promised(num_groups, 0);
    for (std::size_t g = 0; g < num_groups; ++g) {
        num_owners.emplace_back(static_cast<std::size_t>(inspector.pool(g).num_blocks()), 0);
    }
    const auto count = [&](std::size_t g, std::int32_t block, bool is_shared) {
        if (block < 0 || block >= inspector.pool(g).num_blocks())
            return Complain("a block that does not exist is owned");
        std::int32_t& owners = num_owners[g][static_cast<std::size_t>(block)];
        ++owners;
        const bool is_published = Inspector::record(inspector.pool(g), block).is_published;
        if (is_shared != is_published) Complain("a block is not what its owner takes it for");
        if (!is_shared && owners > 1) Complain("an exclusive block has two owners");
    };
    const auto hold = [&](const Holdings& holdings) {
        Inspector::EachBlockOf(holdings, count);
        for (std::size_t g = 0; g < holdings.runs.size(); ++g)
            promised[g] += Inspector::PromiseOf(holdings, g);
    };
    inspector.EachResident([&](const Resident& resident, char) { hold(resident.holdings); });
    inspector.EachRetired([&](std::int64_t, const Holdings& holdings) { hold(holdings); }, count,
                          [](std::int64_t, SlotId) {});
    inspector.EachCopy([](CopyId) {}, count, [](std::size_t, std::int32_t, bool) {}, hold,
                       [](SlotId) {});
    for (std::size_t g = 0; g < num_groups; ++g) {
        CheckPool(g, num_owners[g], promised[g]);
        CheckPublished(g);
    }
}

void Run::CheckPool(std::size_t group, const std::vector<std::int32_t>& num_owners,
                    std::int32_t promised) {
    const DevicePool& pool = Inspector{*scheduler_}.pool(group);
    const std::vector<std::int32_t> free = Inspector::FreeList(pool);
    if (static_cast<std::int32_t>(free.size()) != pool.num_free())
        Complain("free blocks are miscounted");
    if (Inspector::promised(pool) != promised) Complain("promises are miscounted");
    if (pool.num_unpromised() < 0) Complain("more is promised than is free");
    std::vector<bool> is_free(num_owners.size(), false);
    for (const std::int32_t block : free) is_free[static_cast<std::size_t>(block)] = true;
    std::int32_t num_cached = 0;
    for (std::size_t block = 0; block < num_owners.size(); ++block) {
        const auto& record = Inspector::record(pool, static_cast<std::int32_t>(block));
        if (record.num_owners != num_owners[block]) Complain("a block's owners are miscounted");
        if (is_free[block] != (num_owners[block] == 0))
            Complain("a block is free and owned, or neither");
        num_cached += record.is_published && num_owners[block] == 0;
    }
    if (num_cached != pool.num_cached()) Complain("cached blocks are miscounted");
}

// Every published block is found under its key, and holds what its key says.
void Run::CheckPublished(std::size_t group) {
    const DevicePool& pool = Inspector{*scheduler_}.pool(group);
    const ChainHasher hasher(world_.config.hash_key);
    const auto block_tokens = static_cast<std::size_t>(world_.config.block_tokens);
    std::int32_t num_explained = 0;
    std::vector<bool> is_explained(static_cast<std::size_t>(pool.num_blocks()), false);
    for (const WorldRequest& request : world_.requests) {
        std::vector<std::int32_t> tokens = request.prompt;
        tokens.insert(tokens.end(), request.answer.begin(), request.answer.end());
        const std::vector<std::uint8_t> salt(request.salt.begin(), request.salt.end());
        Hash128 key = hasher.Seed(salt, 0);
        for (std::size_t end = block_tokens; end <= tokens.size(); end += block_tokens) {
            key = hasher.Next(key, std::span(tokens).subspan(end - block_tokens, block_tokens));
            const std::int32_t block = pool.Find(key);
            if (block == PrefixIndex::kAbsent) continue;
            if (!Inspector::record(pool, block).is_published)
                return Complain("the index finds an unpublished block");
            if (!device_->Holds(
                    group, block, request.DigestStart(),
                    {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end)})) {
                return Complain("a published block does not hold what its key says");
            }
            if (!is_explained[static_cast<std::size_t>(block)]) ++num_explained;
            is_explained[static_cast<std::size_t>(block)] = true;
        }
    }
    std::int32_t num_published = 0;
    for (std::int32_t block = 0; block < pool.num_blocks(); ++block) {
        const auto& record = Inspector::record(pool, block);
        num_published += record.is_published;
        const bool in_tree =
            record.is_published && group == 0 && record.parent != pool.num_blocks();
        const bool has_host = world_.config.num_host_blocks > 0;  // a copy may pin a child alone
        if (in_tree && !has_host && !Inspector::record(pool, record.parent).is_published) {
            Complain("a parent went before its child");
        }
        if (group > 0) continue;
        std::int32_t child = record.first_child;
        for (; record.is_published && child >= 0;
             child = Inspector::record(pool, child).next_sibling) {
            const auto& below = Inspector::record(pool, child);
            if (!below.is_published || below.parent != block)
                Complain("the tree of prefixes is torn");
        }
    }
    if (num_explained != num_published)
        Complain("a published block is found under no prefix of any request");
}

// What a step names cannot be free, and only the request that it was planned for may own it for
// writing.
void Run::CheckInFlight() {
    const Inspector inspector{*scheduler_};
    for (const ShadowDevice::Planned& step : device_->steps()) {
        for (const auto* blocks : {&step.read, &step.written}) {
            for (const auto& [group, block] : *blocks) {
                if (block < 0 || block >= inspector.pool(group).num_blocks()) {
                    Complain("a step names a block that does not exist");
                } else if (Inspector::record(inspector.pool(group), block).num_owners == 0) {
                    Complain("a block is free while a step still names it");
                }
            }
        }
    }
}

void Run::CheckHost() {
    const Inspector inspector{*scheduler_};
    const HostPool* host = inspector.host();
    if (host == nullptr) return;
    std::vector<std::int32_t> num_owners(static_cast<std::size_t>(host->num_blocks()), 0);
    const auto count = [&](std::size_t, std::int32_t block, bool is_shared) {
        ++num_owners[static_cast<std::size_t>(block)];
        if (Inspector::host_record(*host, block).is_published != is_shared) {
            Complain("a host block is not what its owner takes it for");
        }
    };
    inspector.EachLoading([&](const Loading& loading) {
        for (const HostShared& source : loading.sources) count(0, Raw(source.id()), true);
    });
    inspector.EachCopy([](CopyId) {}, [](std::size_t, std::int32_t, bool) {}, count,
                       [](const Holdings&) {}, [](SlotId) {});
    for (std::int32_t block = 0; block < host->num_blocks(); ++block) {
        if (Inspector::host_record(*host, block).num_owners !=
            num_owners[static_cast<std::size_t>(block)]) {
            Complain("a host block's owners are miscounted");
        }
    }
    const ChainHasher hasher(world_.config.hash_key);
    const auto block_tokens = static_cast<std::size_t>(world_.config.block_tokens);
    for (const WorldRequest& request : world_.requests) {
        std::vector<std::int32_t> tokens = request.prompt;
        tokens.insert(tokens.end(), request.answer.begin(), request.answer.end());
        const std::vector<std::uint8_t> salt(request.salt.begin(), request.salt.end());
        Hash128 key = hasher.Seed(salt, 0);
        for (std::size_t end = block_tokens; end <= tokens.size(); end += block_tokens) {
            key = hasher.Next(key, std::span(tokens).subspan(end - block_tokens, block_tokens));
            const std::int32_t block = host->Find(key);
            if (block == PrefixIndex::kAbsent) continue;
            const std::vector<std::int32_t> prefix(
                tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end));
            if (!device_->HostHolds(block, request.DigestStart(), prefix)) {
                Complain("a host block does not hold what its key says");
            }
        }
    }
    // What a copy names, somebody owns until it is over.
    for (const CopyPlan& copy : device_->copies()) {
        for (const CopyRow& row : copy.rows) {
            if (Inspector::record(inspector.pool(0), row.device_block).num_owners == 0 ||
                Inspector::host_record(*host, row.host_block).num_owners == 0) {
                Complain("a block is free while a copy still names it");
            }
        }
    }
}

Hash128 Run::Digest() const {
    const Inspector inspector{*scheduler_};
    Renamer rename;
    Writer out;
    const auto put_block = [&](std::size_t g, std::int32_t block, bool is_shared) {
        out.Put(rename(g, block) * 2 + is_shared);
    };
    const auto put_holdings = [&](const Holdings& holdings) {
        for (std::size_t g = 0; g < holdings.runs.size(); ++g)
            out.Put(Inspector::PromiseOf(holdings, g));
        Inspector::EachBlockOf(holdings, put_block);
    };
    for (const Told& told : told_) {
        out.Put(told.is_submitted + 2 * told.is_over + 4 * told.was_proposed);
        out.Put(static_cast<std::int64_t>(told.tokens.size()));
    }
    out.Put(now_us_);
    inspector.EachResident([&](const Resident& resident, char state) {
        const Progress& progress = resident.progress;
        out.Put(state);
        out.Put(Raw(resident.request->id));
        out.Put(Raw(resident.slot.id()));
        out.Put(progress.num_computed);
        out.Put(progress.num_planned);
        out.Put(progress.num_sampling);
        out.Put(progress.num_drafts);
        out.Put(resident.request->num_preemptions);
        for (const std::int32_t draft : resident.request->draft_ids) out.Put(draft);
        out.Put(Raw(progress.last_step) < 0
                    ? -1
                    : Raw(progress.last_step) - scheduler_->stats().num_steps);
        put_holdings(resident.holdings);
    });
    inspector.EachWaiting([&](const Request& request) {
        out.Put('w');
        out.Put(Raw(request.id));
        out.Put(request.num_preemptions);
        out.Put(request.num_tokens());
    });
    inspector.EachRow(
        [&](std::int64_t step, const StepRow& row, std::span<const std::int32_t> drafts) {
            out.Put(step - scheduler_->stats().num_steps);
            out.Put(Raw(row.id));
            out.Put(Raw(row.slot));
            out.Put(row.num_tokens);
            out.Put(row.num_samples);
            for (const std::int32_t draft : drafts) out.Put(draft);
        });
    inspector.EachRetired([&](std::int64_t, const Holdings& holdings) { put_holdings(holdings); },
                          put_block, [&](std::int64_t, SlotId slot) { out.Put(Raw(slot)); });
    for (const SlotId slot : inspector.free_slots()) out.Put(Raw(slot));
    constexpr std::size_t kHost = 99;
    const auto put_host = [&](std::size_t, std::int32_t block, bool is_shared) {
        put_block(kHost, block, is_shared);
    };
    inspector.EachLoading([&](const Loading& loading) {
        out.Put(loading.copy.has_value());
        for (const HostShared& source : loading.sources) put_host(0, Raw(source.id()), true);
    });
    inspector.EachCopy([&](CopyId) { out.Put('c'); }, put_block, put_host, put_holdings,
                       [&](SlotId slot) { out.Put(Raw(slot)); });
    for (const CopyPlan& copy : device_->copies()) {
        out.Put('C');
        for (const CopyRow& row : copy.rows) {
            out.Put(row.is_store);
            out.Put(rename(0, row.device_block));
            out.Put(rename(kHost, row.host_block));
        }
    }
    for (const Hash128& key : inspector.unstored()) out.Put(key);
    if (const HostPool* host = inspector.host()) {
        for (const std::int32_t block : Inspector::HostFreeList(*host)) {
            const auto& record = Inspector::host_record(*host, block);
            out.Put(rename(kHost, block));
            out.Put(record.is_published);
            if (record.is_published) out.Put(record.key);
        }
    }
    for (std::size_t g = 0; g < world_.config.groups.size(); ++g) {
        const DevicePool& pool = inspector.pool(g);
        const auto put_contents = [&](std::int32_t block) {
            out.Put(rename(g, block));
            const auto& record = Inspector::record(pool, block);
            out.Put(record.is_published);
            if (record.is_published) out.Put(record.key);
            if (record.is_published && record.next_sibling >= 0)
                out.Put(rename(g, record.next_sibling));
        };
        for (const std::int32_t block : Inspector::FreeList(pool)) put_contents(block);
        for (std::int32_t block = 0; block < pool.num_blocks(); ++block) {
            if (Inspector::record(pool, block).num_owners > 0)
                out.Put(Inspector::record(pool, block).num_owners);
        }
    }
    if (inspector.blockage()) {
        out.Put(inspector.blockage()->key.arrival);
        for (const std::int32_t needed : inspector.blockage()->num_needed) out.Put(needed);
    }
    return out.Digest();
}

}  // namespace tokenlight::control

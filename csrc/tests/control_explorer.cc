// SPDX-License-Identifier: Apache-2.0
// Drives the real scheduler through every order of events that the worlds of worlds.md allow.
//
//   control_explorer WORLDS.md [--deep] [--only NAME] [--mutant NUMBER]
//
// Depth first; a state is reached again by replaying its path. Exit status 1 when an invariant is
// broken. Mutants need a build with -DTOKENLIGHT_PLANTS_MUTANTS.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_set>
#include <vector>

#include "control/mutants.h"
#include "tests/world.h"

namespace tokenlight::control {
namespace {

struct HashOf {
    std::size_t operator()(const Hash128& hash) const { return hash.low; }
};
using States = std::unordered_set<Hash128, HashOf>;

// Every how many states one is driven to its end.
constexpr std::uint64_t kFinishEvery = 4;

struct Outcome {
    std::int64_t num_states = 0;
    std::string complaint;
    std::vector<Action> path;
};

class Search {
  public:
    explicit Search(const World& world) : world_(world) {}

    Outcome Explore() {
        auto run = std::make_unique<Run>(world_);
        Visit(*run);
        struct Frame {
            std::vector<Action> actions;
            std::size_t next = 0;
        };
        std::vector<Frame> stack;
        stack.push_back({run->Enabled()});
        bool is_fresh = true;  // `run` stands where `path_` leads
        while (!stack.empty() && outcome_.complaint.empty()) {
            Frame& frame = stack.back();
            if (frame.next == frame.actions.size()) {
                stack.pop_back();
                if (!path_.empty()) path_.pop_back();
                is_fresh = false;
                continue;
            }
            if (!is_fresh) run = Replay();
            path_.push_back(frame.actions[frame.next++]);
            run->Apply(path_.back());
            is_fresh = Visit(*run);
            if (is_fresh) {
                stack.push_back({run->Enabled()});
            } else {
                path_.pop_back();
            }
        }
        outcome_.num_states = static_cast<std::int64_t>(states_.size());
        return std::move(outcome_);
    }

  private:
    std::unique_ptr<Run> Replay() const {
        auto run = std::make_unique<Run>(world_);
        for (const Action action : path_) run->Apply(action);
        return run;
    }

    // True when the state is new and right.
    bool Visit(Run& run) {
        run.Check();
        if (!run.complaint().empty()) return Fail(run);
        const Hash128 digest = run.Digest();
        if (!states_.insert(digest).second) return false;
        if (digest.high % kFinishEvery == 0) {
            const auto to_its_end = Replay();
            to_its_end->Finish();
            if (!to_its_end->complaint().empty()) return Fail(*to_its_end);
        }
        return true;
    }

    bool Fail(const Run& run) {
        if (outcome_.complaint.empty()) {
            outcome_.complaint = run.complaint();
            outcome_.path = path_;
        }
        return false;
    }

    const World& world_;
    States states_;
    std::vector<Action> path_;
    Outcome outcome_;
};

int Main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(
            stderr, "usage: control_explorer WORLDS.md [--deep] [--only NAME] [--mutant NUMBER]\n");
        return 2;
    }
    bool is_deep = false;
    std::string only;
    for (int i = 2; i < argc; ++i) {
        is_deep |= std::strcmp(argv[i], "--deep") == 0;
        if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) only = argv[i + 1];
#ifdef TOKENLIGHT_PLANTS_MUTANTS
        if (std::strcmp(argv[i], "--mutant") == 0 && i + 1 < argc)
            planted_mutant = static_cast<Mutant>(std::atoi(argv[i + 1]));
#endif
    }
    std::int64_t num_states = 0;
    int status = 0;
    std::vector<World> worlds = ReadWorlds(argv[1]);
    // Small ones first: most faults show there, and soon.
    std::ranges::stable_sort(worlds, {}, &World::num_states);
    for (const World& world : worlds) {
        if ((world.is_deep && !is_deep) || (!only.empty() && world.name != only)) continue;
        const Outcome outcome = Search(world).Explore();
        num_states += outcome.num_states;
        std::printf("world %s states %lld listed %lld\n", world.name.c_str(),
                    static_cast<long long>(outcome.num_states),
                    static_cast<long long>(world.num_states));
        std::fflush(stdout);
        if (outcome.complaint.empty()) continue;
        std::printf("BROKEN %s: %s\n", world.name.c_str(), outcome.complaint.c_str());
        for (const Action action : outcome.path) std::printf("  %s\n", NameOf(action).c_str());
        return 1;
    }
    std::printf("total %lld\n", static_cast<long long>(num_states));
    return status;
}

}  // namespace
}  // namespace tokenlight::control

int main(int argc, char** argv) { return tokenlight::control::Main(argc, argv); }

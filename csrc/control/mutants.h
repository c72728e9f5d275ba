// SPDX-License-Identifier: Apache-2.0
#pragma once

// Faults that the explorer must find. A program built with -DTOKENLIGHT_PLANTS_MUTANTS has the one
// it is told to at run time; in every other, the product's among them, there is none.
namespace tokenlight::control {

enum class Mutant {
    kNone,
    kFreeInFlight,         // blocks go home at once although a step still names them
    kPublishRejected,      // rejected drafts count as computed
    kPublishPartial,       // a block is published before it is full
    kShareWithoutUnlink,   // a shared block stays on the free list
    kLeakOnAbort,          // an aborted request's blocks are never returned
    kSaltIgnored,          // requests of different salt share blocks
    kReuseWholePrompt,     // a full hit leaves no token to compute
    kSlotReusedInFlight,   // a slot goes home at once although a step still names it
    kBudgetIgnored,        // a prefill chunk may pass the step's budget
    kPreemptWithoutBound,  // a request can be preempted for ever
    kPromiseTwice,         // the same free block is promised to two requests
    kWindowTooShort,       // a window's block dies one query too early
    kCopySourceUnpinned,   // the source of a copy may be evicted before the copy ran
    kEvictKeepsKey,        // an evicted block stays in the index
    kStateOffBoundary,     // a recurrent state is kept where no block ends
    kLoadEndsEarly,        // blocks go home at once although a copy still writes to them
    kFailedCopyPublished,  // a copy that failed is taken for one that succeeded
    kProposeInFlight,      // drafts are kept although a step in flight samples their place
};

#ifdef TOKENLIGHT_PLANTS_MUTANTS
inline Mutant planted_mutant = Mutant::kNone;
inline bool IsPlanted(Mutant mutant) { return mutant == planted_mutant; }
#else
constexpr bool IsPlanted(Mutant) { return false; }
#endif

}  // namespace tokenlight::control

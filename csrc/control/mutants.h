// SPDX-License-Identifier: Apache-2.0
#pragma once

// Faults that the explorer must find, planted at compile time with -DTOKENLIGHT_MUTANT=n; 0 in
// every product build.
#ifndef TOKENLIGHT_MUTANT
#define TOKENLIGHT_MUTANT 0
#endif

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

template <Mutant kMutant>
inline constexpr bool kPlanted = TOKENLIGHT_MUTANT == static_cast<int>(kMutant);

}  // namespace tokenlight::control

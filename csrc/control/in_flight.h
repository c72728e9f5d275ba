// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace tokenlight::control {

// Owned, but named by a step or a copy that has not come back: cannot be read, written or freed
// before it does.
template <typename Resource, typename Receipt>
class InFlight {
  public:
    explicit InFlight(Resource&& resource) : resource_(std::move(resource)) {}
    InFlight(InFlight&&) = default;
    InFlight& operator=(InFlight&&) = delete;

  private:
    template <typename Any, typename Proof>
    friend Any Land(InFlight<Any, Proof>&&, const Proof&);
    friend struct Inspector;
    Resource resource_;
};

// The resource, now that what named it is back.
template <typename Resource, typename Receipt>
[[nodiscard]] Resource Land(InFlight<Resource, Receipt>&& landed, const Receipt&) {
    return std::move(landed.resource_);
}

}  // namespace tokenlight::control

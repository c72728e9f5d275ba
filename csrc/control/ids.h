// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

namespace tokenlight::control {

enum class RequestId : std::int64_t {};
enum class SlotId : std::int32_t {};
enum class StepId : std::int64_t {};
enum class CopyId : std::int64_t {};
enum class DeviceBlockId : std::int32_t {};
enum class HostBlockId : std::int32_t {};

enum class Tier { kDevice, kHost };

// A block of one tier is not a block of the other: their ids do not convert.
template <Tier kTier>
using BlockId = std::conditional_t<kTier == Tier::kDevice, DeviceBlockId, HostBlockId>;

template <typename Id>
    requires std::is_enum_v<Id>
constexpr std::underlying_type_t<Id> Raw(Id id) {
    return static_cast<std::underlying_type_t<Id>>(id);
}

constexpr std::int32_t CeilDiv(std::int32_t a, std::int32_t b) { return (a + b - 1) / b; }

}  // namespace tokenlight::control

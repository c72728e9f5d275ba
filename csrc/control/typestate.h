// SPDX-License-Identifier: Apache-2.0
#pragma once

// Typestate: clang's -Wconsumed refuses, at compile time, a guard that is dropped or committed
// twice and a block that is used after it was given away. Other compilers do not know the
// attributes.
#if defined(__clang__)
#define TL_CONSUMABLE [[clang::consumable(unconsumed)]]
#define TL_CALLABLE_WHEN(...) [[clang::callable_when(__VA_ARGS__)]]
#define TL_LIVE_PARAM [[clang::param_typestate(unconsumed)]]
#define TL_RETURNS_UNKNOWN [[clang::return_typestate(unknown)]]
#define TL_TESTS_LIVE [[clang::test_typestate(unconsumed)]]
#else
#define TL_CONSUMABLE
#define TL_CALLABLE_WHEN(...)
#define TL_LIVE_PARAM
#define TL_RETURNS_UNKNOWN
#define TL_TESTS_LIVE
#endif

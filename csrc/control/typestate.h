// SPDX-License-Identifier: Apache-2.0
#pragma once

// Typestate: clang's -Wconsumed refuses, at compile time, a guard that is dropped or committed
// twice and a block that is used after it was given away. Other compilers do not know the
// attributes.
#if defined(__clang__)
#define TL_CONSUMABLE [[clang::consumable(unconsumed)]]
#define TL_CALLABLE_WHEN(state) [[clang::callable_when(state)]]
#define TL_CONSUMES [[clang::set_typestate(consumed)]]
#define TL_RETURNS_LIVE [[clang::return_typestate(unconsumed)]]
#define TL_RETURNS_UNKNOWN [[clang::return_typestate(unknown)]]
#define TL_TESTS_LIVE [[clang::test_typestate(unconsumed)]]
#else
#define TL_CONSUMABLE
#define TL_CALLABLE_WHEN(state)
#define TL_CONSUMES
#define TL_RETURNS_LIVE
#define TL_RETURNS_UNKNOWN
#define TL_TESTS_LIVE
#endif

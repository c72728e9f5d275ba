# SPDX-License-Identifier: Apache-2.0
"""How models mark reasoning."""

from dataclasses import replace

from tokenlight.text.parsing.format import ReasoningFormat

NONE = ReasoningFormat(name="none")

QWEN3 = ReasoningFormat(
    name="qwen3", openers=("<think>",), closers=("</think>",), signs=(("</think>",), ("<think>",))
)

DEEPSEEK_R1 = replace(QWEN3, name="deepseek_r1", is_implied=True, signs=())

KIMI_K2 = replace(QWEN3, name="kimi_k2", padding=0, gap=0, signs=(("<think>", "<|im_middle|>"),))

GLM45 = replace(QWEN3, name="glm45", gap=1, signs=(("</think>", "[gMASK]"),))

MINIMAX_M2 = replace(
    QWEN3, name="minimax_m2", is_implied=True, signs=(("<think>", "<minimax:tool_call>"),)
)

SEED_OSS = ReasoningFormat(
    name="seed_oss",
    openers=("<seed:think>",),
    closers=("</seed:think>",),
    padding=0,
    gap=1,
    signs=(("<seed:think>",),),
)

MISTRAL = ReasoningFormat(
    name="mistral",
    openers=("[THINK]",),
    closers=("[/THINK]",),
    padding=0,
    gap=0,
    signs=(("[THINK]",),),
)

GEMMA4 = ReasoningFormat(
    name="gemma4",
    openers=("<|channel>thought",),
    closers=("<channel|>",),
    gap=0,
    signs=(("<|channel>thought",),),
)

GRANITE = ReasoningFormat(
    name="granite",
    openers=("<think>", "Here is my thought process:", "Here's my thought process:"),
    closers=("</think>", "Here is my response:", "Here's my response:"),
    strays=("<response>", "</response>"),
    signs=(("<think>", "<|start_of_role|>"), ("Here is my thought process:",)),
)

COHERE = ReasoningFormat(
    name="cohere",
    openers=("<|START_THINKING|>",),
    closers=("<|END_THINKING|>",),
    padding=0,
    gap=0,
    signs=(("<|START_THINKING|>",),),
)

HARMONY = ReasoningFormat(  # read by `channels`; here for what asks where reasoning begins and ends
    name="harmony",
    openers=("<|channel|>analysis<|message|>",),
    closers=("<|end|>",),
    padding=0,
    gap=0,
    signs=(("<|channel|>", "<|message|>", "<|start|>"),),
)

# SPDX-License-Identifier: Apache-2.0
"""Cohere Command R7B and A: a JSON list between control tokens."""

from tokenlight.text.parsing.format import JsonCall, ToolFormat

COHERE = ToolFormat(
    name="cohere",
    openers=("<|START_ACTION|>",),
    closers=("<|END_ACTION|>",),
    forms=(JsonCall(),),
    frame=('<|START_ACTION|>[{"tool_name": "NAME", "parameters": ', "}]<|END_ACTION|>"),
    signs=(("<|START_ACTION|>",),),
)

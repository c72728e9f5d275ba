# SPDX-License-Identifier: Apache-2.0
"""Nemotron Nano 2: a JSON list in tags; later ones write as Qwen3-Coder does."""

from tokenlight.text.parsing.format import JsonCall, ToolFormat

NEMOTRON = ToolFormat(
    name="nemotron",
    openers=("<TOOLCALL>",),
    closers=("</TOOLCALL>",),
    forms=(JsonCall(),),
    frame=('<TOOLCALL>[{"name": "NAME", "arguments": ', "}]</TOOLCALL>"),
    signs=(("<TOOLCALL>",),),
)

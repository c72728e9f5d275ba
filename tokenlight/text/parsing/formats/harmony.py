# SPDX-License-Identifier: Apache-2.0
"""gpt-oss (harmony): messages with headers that name a channel and a recipient."""

from tokenlight.text.parsing.format import Channels, ToolFormat

HARMONY = ToolFormat(
    name="harmony",
    channels=Channels(
        start="<|start|>",
        channel="<|channel|>",
        message="<|message|>",
        constrain="<|constrain|>",
        ends=("<|end|>", "<|call|>", "<|return|>"),
        reasoning=frozenset({"analysis"}),
        namespace="functions.",
    ),
    frame=("<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>", "<|call|>"),
    signs=(("<|channel|>", "<|message|>", "<|start|>"),),
)

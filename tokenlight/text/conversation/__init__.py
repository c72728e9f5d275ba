# SPDX-License-Identifier: Apache-2.0
"""Conversations: one model for every protocol, mended, and rendered by the model's own template."""

from tokenlight.text.conversation.arguments import (
    json_text,
    spelled_object,
    written_arguments,
)
from tokenlight.text.conversation.mend import mend
from tokenlight.text.conversation.messages import (
    CUSTOM_INPUT,
    Message,
    decode_messages,
    read_messages,
)
from tokenlight.text.conversation.render import make_rendering, render_text
from tokenlight.text.conversation.traits import PLAINEST, Template, Traits, read_traits
from tokenlight.text.conversation.turns import (
    UNSEEN,
    UNSEEN_KINDS,
    Conversation,
    Part,
    Reasoning,
    ReasoningWish,
    Role,
    Shape,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Turn,
)
from tokenlight.text.conversation.volatile import without_volatile

__all__ = [
    "CUSTOM_INPUT",
    "PLAINEST",
    "UNSEEN",
    "UNSEEN_KINDS",
    "Conversation",
    "Message",
    "Part",
    "Reasoning",
    "ReasoningWish",
    "Role",
    "Shape",
    "Template",
    "Text",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "Traits",
    "Turn",
    "decode_messages",
    "json_text",
    "make_rendering",
    "mend",
    "read_messages",
    "read_traits",
    "render_text",
    "spelled_object",
    "without_volatile",
    "written_arguments",
]

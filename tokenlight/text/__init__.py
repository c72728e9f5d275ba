# SPDX-License-Identifier: Apache-2.0
"""Text at the edge of the engine: messages to token ids, token ids to text."""

from tokenlight.text.decoder import AnswerDecoder
from tokenlight.text.detokenize import Detokenizer
from tokenlight.text.stop_strings import StopStrings
from tokenlight.text.template import ChatTemplate
from tokenlight.text.tokenizer import Tokenizer

__all__ = ["AnswerDecoder", "ChatTemplate", "Detokenizer", "StopStrings", "Tokenizer"]

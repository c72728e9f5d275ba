# SPDX-License-Identifier: Apache-2.0
"""Vocabularies of every kind behind one face."""

from tokenlight.text.tokenizer.tokenizer import Tokenizer

__all__ = ["Tokenizer"]

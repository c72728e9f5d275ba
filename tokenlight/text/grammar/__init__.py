# SPDX-License-Identifier: Apache-2.0
"""Grammars: what an answer must look like, as rules that the engine enforces token by token."""

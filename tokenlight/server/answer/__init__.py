# SPDX-License-Identifier: Apache-2.0
"""From a conversation to its answer, whichever protocol asks: the prompt, the items, the counts."""

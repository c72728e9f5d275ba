# SPDX-License-Identifier: Apache-2.0
"""OpenAI's chat completions, as a view over the conversation model."""

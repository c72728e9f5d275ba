# SPDX-License-Identifier: Apache-2.0
"""Anthropic's Messages protocol, as a view over the conversation model."""

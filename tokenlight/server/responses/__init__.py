# SPDX-License-Identifier: Apache-2.0
"""OpenAI's Responses protocol, as a view over the conversation model."""

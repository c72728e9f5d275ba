# SPDX-License-Identifier: Apache-2.0
"""GGUF files: one file has configuration, tokenizer and tensors."""

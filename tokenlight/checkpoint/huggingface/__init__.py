# SPDX-License-Identifier: Apache-2.0
"""Folders of Hugging Face's kind: JSON files beside safetensors."""

# SPDX-License-Identifier: Apache-2.0
"""The part of a configuration that says how keys and values are made of one latent per token.

q_lora_rank (None: queries are not compressed), kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim,
v_head_dim, rope_interleave (whether neighbours are rotated together), has_split_kv_b (whether the
file keeps the keys' and the values' part of kv_b apart, per head).
"""

from collections.abc import Mapping
from typing import Any

from tokenlight.checkpoint.checked_keys import CheckedKeys


def has_latents(defaults: Mapping[str, Any]) -> bool:
    """Whether a model type has these keys: its row of defaults says so, not the file."""
    return "kv_lora_rank" in defaults


def latent_keys(asked: CheckedKeys) -> dict[str, Any]:
    """The keys above.

    Raises:
        CheckpointCorrupt: a value is missing or cannot be.
    """
    source = asked.source
    compressed = source.get("q_lora_rank") is not None
    return {
        "q_lora_rank": asked.size("q_lora_rank") if compressed else None,
        "kv_lora_rank": asked.size("kv_lora_rank"),
        "qk_nope_head_dim": asked.size("qk_nope_head_dim"),
        "qk_rope_head_dim": asked.size("qk_rope_head_dim"),
        "v_head_dim": asked.size("v_head_dim"),
        "rope_interleave": bool(source.get("rope_interleave", True)),
        "has_split_kv_b": bool(source.get("has_split_kv_b", False)),
    }

# SPDX-License-Identifier: Apache-2.0
"""Folders with config.json alone, in the shapes of known models: run with --load-format dummy."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

NUM_SPECIALS = 16
_COMMON: dict[str, Any] = {
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3_8b": {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": False,
    },
    "llama_1b": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "tie_word_embeddings": True,
    },
    "qwen3_30b_a3b": {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "tie_word_embeddings": False,
    },
    "tiny": {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "vocab_size": 2048,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "tie_word_embeddings": False,
    },
}


def write_model(name: str, parent: Path, **changes: Any) -> Path:
    """The folder of a shape, with some of its numbers changed."""
    folder = parent / name
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**_COMMON, **SHAPES[name], **changes}))
    return folder


def flops_per_token(name: str) -> float:
    """Of the matrices that every token of a prompt passes: two operations per weight."""
    s = SHAPES[name]
    hidden, inner, heads = s["hidden_size"], s["intermediate_size"], s["num_attention_heads"]
    kv_heads, head_dim, layers = s["num_key_value_heads"], s["head_dim"], s["num_hidden_layers"]
    qkv_o = hidden * head_dim * (2 * heads + 2 * kv_heads)
    return 2.0 * layers * (qkv_o + 3 * hidden * inner)


def attention_flops(name: str, num_tokens: int, num_before: int = 0) -> float:
    """Of a causal prompt: scores and sums, two operations each."""
    s = SHAPES[name]
    pairs = num_tokens * num_before + num_tokens * (num_tokens + 1) / 2
    return 4.0 * pairs * s["num_attention_heads"] * s["head_dim"] * s["num_hidden_layers"]


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    """A byte-level BPE of as many tokens: bytes, pairs and triples of letters, then specials."""
    characters = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in characters]
    tokens = [chr(c) for c in characters] + [chr(256 + i) for i in range(len(rest))]
    merges: list[str] = []
    letters = string.ascii_letters
    longer = [[a, b] for a in letters for b in letters]
    longer += [[a + b, c] for a in letters for b in letters for c in letters]
    for pair in longer[: vocab_size - NUM_SPECIALS - len(tokens)]:
        merges.append(" ".join(pair))
    tokens += [merge.replace(" ", "") for merge in merges]
    specials = [f"<|special_{i}|>" for i in range(vocab_size - len(tokens))]
    byte_level = {"type": "ByteLevel", "trim_offsets": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": len(tokens) + i,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i, text in enumerate(specials)
        ],
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "add_prefix_space": False, "use_regex": True},
        "decoder": {**byte_level, "add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": merges,
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))

# SPDX-License-Identifier: Apache-2.0
"""A model's configuration, made whole: config.json's keys with every default filled in and checked.

config.json leaves out what equals its class's defaults and has changed its spelling over the years;
GGUF metadata is translated into the same keys first. What comes out has all of them:

vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
num_key_value_heads, head_dim, max_position_embeddings (with rope scaling counted in), rms_norm_eps,
hidden_act, attention_bias, mlp_bias, tie_word_embeddings, sliding_window (None for none),
layer_types and rope_parameters (by layer type: "full_attention", "sliding_attention"),
query_pre_attn_scalar, attn_logit_softcapping, final_logit_softcapping, bos_token_id,
eos_token_id (a list).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.checkpoint.rope_config import (
    is_positive_number,
    rope_context_tokens,
    rope_parameters_of,
)

# No real model comes near; what is above is a broken file.
MAX_SIZE = 1 << 24
MAX_CONTEXT_TOKENS = 1 << 31
MIN_HEAD_DIM = 4

FULL, SLIDING = "full_attention", "sliding_attention"

# What each class of transformers assumes where config.json says nothing.
_COMMON: dict[str, Any] = {
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": _COMMON,
    "mistral": {
        **_COMMON,
        "max_position_embeddings": 131072,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
    },
    "qwen2": {**_COMMON, "max_position_embeddings": 32768, "sliding_window": 4096},
    "qwen3": {
        **_COMMON,
        "max_position_embeddings": 32768,
        "head_dim": 128,
        "sliding_window": 4096,
    },
    "gemma2": {
        **_COMMON,
        "vocab_size": 256000,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh",
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 2,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    "gemma3": {
        **_COMMON,
        "vocab_size": 262208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh",
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
    },
}
DEFAULTS["gemma3_text"] = DEFAULTS["gemma3"]


def complete_config(
    raw: Mapping[str, Any], path: Path, spelled: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Fill in and check a configuration.

    Args:
        raw: config.json's keys; of several models in one, the text model's.
        path: named in errors.
        spelled: what the file itself calls a key, for errors.

    Raises:
        CheckpointCorrupt: a value is missing or cannot be.
        UnsupportedCheckpoint: the model type, or a value, is one that we do not implement.
    """
    model_type = raw.get("model_type")
    if not isinstance(model_type, str) or model_type not in DEFAULTS:
        raise UnsupportedCheckpoint(
            f"{path}: the model type {model_type!r} is not supported; "
            f"supported are {', '.join(DEFAULTS)}"
        )
    return _Completion(path, {**DEFAULTS[model_type], **raw}, spelled or {}).config()


class _Completion:
    """A configuration with its class's defaults, asked for one checked value after the other."""

    def __init__(self, path: Path, source: Mapping[str, Any], spelled: Mapping[str, str]) -> None:
        self._path = path
        self._source = source
        self._spelled = spelled

    def config(self) -> dict[str, Any]:
        source = self._source
        num_heads = self._size("num_attention_heads")
        num_kv_heads = self._size("num_key_value_heads", num_heads)
        if num_heads % num_kv_heads:
            raise self._corrupt(
                f"num_attention_heads {num_heads} is not a multiple of "
                f"num_key_value_heads {num_kv_heads}"
            )
        head_dim = self._head_dim(num_heads)
        layer_types = self._layer_types()
        rope_parameters = rope_parameters_of(source, layer_types, self._path)
        context_tokens = self._size("max_position_embeddings", limit=MAX_CONTEXT_TOKENS)
        return {
            "model_type": source["model_type"],
            "vocab_size": self._size("vocab_size"),
            "hidden_size": self._size("hidden_size"),
            "intermediate_size": self._size("intermediate_size"),
            "num_hidden_layers": len(layer_types),
            "num_attention_heads": num_heads,
            "num_key_value_heads": num_kv_heads,
            "head_dim": head_dim,
            "max_position_embeddings": min(
                rope_context_tokens(source["model_type"], context_tokens, rope_parameters[FULL]),
                MAX_CONTEXT_TOKENS,
            ),
            "rms_norm_eps": self._positive("rms_norm_eps"),
            "hidden_act": self._activation(),
            "attention_bias": self._flag("attention_bias"),
            "mlp_bias": self._flag("mlp_bias"),
            "tie_word_embeddings": self._flag("tie_word_embeddings"),
            "sliding_window": self._window(layer_types),
            "layer_types": layer_types,
            "rope_parameters": rope_parameters,
            "query_pre_attn_scalar": self._positive("query_pre_attn_scalar", float(head_dim)),
            "attn_logit_softcapping": self._softcap("attn_logit_softcapping"),
            "final_logit_softcapping": self._softcap("final_logit_softcapping"),
            "bos_token_id": self._token_id("bos_token_id"),
            "eos_token_id": self._token_ids("eos_token_id"),
        }

    def _head_dim(self, num_heads: int) -> int:
        hidden_size = self._size("hidden_size")
        if self._source.get("head_dim") is None and hidden_size % num_heads:
            raise self._corrupt(
                f"hidden_size {hidden_size} is not a multiple of num_attention_heads {num_heads}"
            )
        head_dim = self._size("head_dim", hidden_size // num_heads)
        if head_dim % 2 or head_dim < MIN_HEAD_DIM:
            raise self._corrupt(f"head_dim is {head_dim}; it must be even and at least 4")
        return head_dim

    def _layer_types(self) -> list[str]:
        source = self._source
        num_layers = self._size("num_hidden_layers", limit=1 << 16)
        listed = source.get("layer_types")
        if listed is not None:
            known = isinstance(listed, list) and all(each in (FULL, SLIDING) for each in listed)
            if not known or len(listed) != num_layers:
                raise UnsupportedCheckpoint(
                    f"{self._path}: layer_types must be {num_layers} times {FULL!r} or {SLIDING!r}"
                )
            return list(listed)
        first_sliding, every = num_layers, 0
        if source.get("sliding_window") is not None:
            if source["model_type"] == "mistral":
                first_sliding = 0
            elif source.get("use_sliding_window"):
                first_sliding = self._size("max_window_layers", 28)
            elif "sliding_window_pattern" in source:
                first_sliding, every = 0, self._size("sliding_window_pattern")
        is_sliding = [
            layer >= first_sliding and (every == 0 or (layer + 1) % every != 0)
            for layer in range(num_layers)
        ]
        return [SLIDING if sliding else FULL for sliding in is_sliding]

    def _window(self, layer_types: list[str]) -> int | None:
        if SLIDING not in layer_types:
            return None
        return self._size("sliding_window", limit=MAX_CONTEXT_TOKENS)

    def _activation(self) -> str:
        # Gemma's files call it hidden_activation; the older key is a leftover there.
        key = "hidden_activation" if "hidden_activation" in self._source else "hidden_act"
        wanted = DEFAULTS[self._source["model_type"]]["hidden_act"]
        if self._source[key] != wanted:
            raise UnsupportedCheckpoint(
                f"{self._path}: {key} is {self._source[key]!r}; only {wanted!r} is supported"
            )
        return str(wanted)

    def _softcap(self, key: str) -> float | None:
        return None if self._source.get(key) is None else self._positive(key)

    def _size(self, key: str, default: int | None = None, *, limit: int = MAX_SIZE) -> int:
        found = self._source.get(key)
        found = default if found is None else found
        if found is None:
            raise self._corrupt(f"{self._name(key)} is missing")
        if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= limit:
            raise self._corrupt(f"{self._name(key)} is {found!r}; it must be from 1 to {limit}")
        return found

    def _positive(self, key: str, default: float | None = None) -> float:
        found = self._source.get(key)
        found = default if found is None else found
        if found is None or not is_positive_number(found):
            raise self._corrupt(f"{self._name(key)} is {found!r}; it must be a positive number")
        return float(found)

    def _flag(self, key: str) -> bool:
        found = self._source[key]
        if not isinstance(found, bool):
            raise self._corrupt(f"{key} is {found!r}; it must be true or false")
        return found

    def _token_id(self, key: str) -> int | None:
        ids = self._token_ids(key)
        return ids[0] if ids else None

    def _token_ids(self, key: str) -> list[int]:
        found = self._source.get(key)
        listed = found if isinstance(found, list) else [] if found is None else [found]
        for token_id in listed:
            if type(token_id) is not int or not 0 <= token_id < self._size("vocab_size"):
                raise self._corrupt(
                    f"{self._name(key)} is {found!r}; "
                    f"the vocabulary has {self._size('vocab_size')} tokens"
                )
        return listed

    def _name(self, key: str) -> str:
        return self._spelled.get(key, key)

    def _corrupt(self, what: str) -> CheckpointCorrupt:
        return CheckpointCorrupt(f"{self._path}: {what}")

# SPDX-License-Identifier: Apache-2.0
"""A model's configuration, made whole: config.json's keys with every default filled in and checked.

config.json leaves out what equals its class's defaults and has changed its spelling over the years;
GGUF metadata is translated into the same keys first. What comes out has all of them:

vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
num_key_value_heads, head_dim, max_position_embeddings (with rope scaling counted in), rms_norm_eps,
hidden_act, attention_bias, mlp_bias, tie_word_embeddings, sliding_window (None for none),
layer_types and rope_parameters (by layer type: "full_attention", "sliding_attention"),
query_pre_attn_scalar, attn_logit_softcapping, final_logit_softcapping, bos_token_id,
eos_token_id (a list). Models with experts, or with latent attention, have the keys of
`experts_config` and `latent_config` as well.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenlight.base.errors import UnsupportedCheckpoint
from tokenlight.checkpoint.checked_keys import MAX_CONTEXT_TOKENS, CheckedKeys
from tokenlight.checkpoint.experts_config import expert_keys, has_experts
from tokenlight.checkpoint.latent_config import has_latents, latent_keys
from tokenlight.checkpoint.model_defaults import DEFAULTS
from tokenlight.checkpoint.rope_config import rope_context_tokens, rope_parameters_of

MIN_HEAD_DIM = 4

# Keys of models that scale what others do not, where the model's defaults have them.
_SCALES = ("_multiplier", "logits_scaling")

FULL, SLIDING = "full_attention", "sliding_attention"


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
        asked = f"the model type {model_type!r} is not supported"
        raise UnsupportedCheckpoint(
            f"{path}: {'no model_type is given' if model_type is None else asked}; "
            f"supported are {', '.join(DEFAULTS)}"
        )
    source = {**DEFAULTS[model_type], **raw}
    if has_latents(DEFAULTS[model_type]):
        # The rotation's: what is not rotated has a size of its own.
        source["head_dim"] = source["qk_rope_head_dim"]
    return _Completion(path, source, spelled or {}).config()


class _Completion(CheckedKeys):
    """A configuration with its class's defaults, asked for one checked value after the other."""

    @property
    def _defaults(self) -> Mapping[str, Any]:
        return DEFAULTS[self.source["model_type"]]

    def config(self) -> dict[str, Any]:
        source = self.source
        self._check_direction()
        num_heads = self.size("num_attention_heads")
        num_kv_heads = self.size("num_key_value_heads", num_heads)
        if num_heads % num_kv_heads:
            raise self.corrupt(
                f"num_attention_heads {num_heads} is not a multiple of "
                f"num_key_value_heads {num_kv_heads}"
            )
        head_dim = self._head_dim(num_heads)
        layer_types = self._layer_types()
        rope_parameters = rope_parameters_of(source, layer_types, self.path)
        context_tokens = self.size("max_position_embeddings", limit=MAX_CONTEXT_TOKENS)
        return {
            "model_type": source["model_type"],
            "vocab_size": self.size("vocab_size"),
            "hidden_size": self.size("hidden_size"),
            "intermediate_size": self.size("intermediate_size"),
            "num_hidden_layers": len(layer_types),
            "num_attention_heads": num_heads,
            "num_key_value_heads": num_kv_heads,
            "head_dim": head_dim,
            "max_position_embeddings": min(
                rope_context_tokens(source["model_type"], context_tokens, rope_parameters[FULL]),
                MAX_CONTEXT_TOKENS,
            ),
            "rms_norm_eps": self.positive("rms_norm_eps"),
            "hidden_act": self._activation(),
            "attention_bias": self.flag("attention_bias"),
            "mlp_bias": self.flag("mlp_bias"),
            "tie_word_embeddings": self.flag("tie_word_embeddings"),
            "sliding_window": self._window(layer_types),
            "layer_types": layer_types,
            "rope_parameters": rope_parameters,
            "query_pre_attn_scalar": self.positive("query_pre_attn_scalar", float(head_dim)),
            "attn_logit_softcapping": self._softcap("attn_logit_softcapping"),
            "final_logit_softcapping": self._softcap("final_logit_softcapping"),
            **{key: self.positive(key) for key in self._defaults if key.endswith(_SCALES)},
            "bos_token_id": self._token_id("bos_token_id"),
            "eos_token_id": self._token_ids("eos_token_id"),
            **(expert_keys(self, len(layer_types)) if has_experts(self._defaults) else {}),
            **(latent_keys(self) if has_latents(self._defaults) else {}),
        }

    def _check_direction(self) -> None:
        """Models that make embeddings read both ways, under the model type of their origin."""
        source = self.source
        for key, sees_later in (
            ("use_bidirectional_attention", source.get("use_bidirectional_attention")),
            ("is_causal", source.get("is_causal") is False),
        ):
            if sees_later:
                raise self.unsupported(
                    f"{key} is {source[key]}: a token sees those after it, as in models that make "
                    f"embeddings; only models that write text are supported"
                )

    def _head_dim(self, num_heads: int) -> int:
        hidden_size = self.size("hidden_size")
        if self.source.get("head_dim") is None and hidden_size % num_heads:
            raise self.corrupt(
                f"hidden_size {hidden_size} is not a multiple of num_attention_heads {num_heads}"
            )
        head_dim = self.size("head_dim", hidden_size // num_heads)
        if head_dim % 2 or head_dim < MIN_HEAD_DIM:
            raise self.corrupt(f"head_dim is {head_dim}; it must be even and at least 4")
        return head_dim

    def _layer_types(self) -> list[str]:
        source = self.source
        num_layers = self.size("num_hidden_layers", limit=1 << 16)
        listed = source.get("layer_types")
        if listed is not None:
            known = isinstance(listed, list) and all(each in (FULL, SLIDING) for each in listed)
            if not known or len(listed) != num_layers:
                raise UnsupportedCheckpoint(
                    f"{self.path}: layer_types must be {num_layers} times {FULL!r} or {SLIDING!r}"
                )
            return list(listed)
        first_sliding, every = num_layers, 0
        if source.get("sliding_window") is not None:
            if source["model_type"] == "mistral":
                first_sliding = 0
            elif source.get("use_sliding_window"):
                is_everywhere = source["model_type"] == "qwen3_moe"
                first_sliding = 0 if is_everywhere else self.size("max_window_layers", 28)
            elif "sliding_window_pattern" in source:
                first_sliding, every = 0, self.size("sliding_window_pattern")
        is_sliding = [
            layer >= first_sliding and (every == 0 or (layer + 1) % every != 0)
            for layer in range(num_layers)
        ]
        return [SLIDING if sliding else FULL for sliding in is_sliding]

    def _window(self, layer_types: list[str]) -> int | None:
        if SLIDING not in layer_types:
            return None
        return self.size("sliding_window", limit=MAX_CONTEXT_TOKENS)

    def _activation(self) -> str:
        # Gemma's files call it hidden_activation; the older key is a leftover there.
        key = "hidden_activation" if "hidden_activation" in self.source else "hidden_act"
        wanted = self._defaults["hidden_act"]
        if self.source[key] != wanted:
            raise UnsupportedCheckpoint(
                f"{self.path}: {key} is {self.source[key]!r}; only {wanted!r} is supported"
            )
        return str(wanted)

    def _softcap(self, key: str) -> float | None:
        return None if self.source.get(key) is None else self.positive(key)

    def _token_id(self, key: str) -> int | None:
        ids = self._token_ids(key)
        return ids[0] if ids else None

    def _token_ids(self, key: str) -> list[int]:
        found = self.source.get(key)
        listed = found if isinstance(found, list) else [] if found is None else [found]
        for token_id in listed:
            if type(token_id) is not int or not 0 <= token_id < self.size("vocab_size"):
                raise self.corrupt(
                    f"{self.name(key)} is {found!r}; "
                    f"the vocabulary has {self.size('vocab_size')} tokens"
                )
        return listed

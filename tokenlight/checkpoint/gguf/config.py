# SPDX-License-Identifier: Apache-2.0
"""A GGUF file's metadata in the keys of Hugging Face's config.json."""

from typing import Any

from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.checkpoint.gguf.experts import SIZES as EXPERT_SIZES
from tokenlight.checkpoint.gguf.experts import expert_facts
from tokenlight.checkpoint.gguf.header import GgufHeader
from tokenlight.checkpoint.metadata import Array
from tokenlight.checkpoint.model_config import complete_config

# general.architecture -> config.json's model_type
ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "qwen3moe": "qwen3_moe",
    "deepseek2": "deepseek_v3",
    "gpt-oss": "gpt_oss",
    "seed_oss": "seed_oss",
}

# config.json's key -> the metadata's, after "<architecture>."; these a file must have
REQUIRED_SIZES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
}
EPSILON = "attention.layer_norm_rms_epsilon"
# These it may leave out.
SIZES = {
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
}
NUMBERS = {
    "rope_theta": "rope.freq_base",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}

# Of llama.cpp, whose files do not say it: the largest Gemmas scale by another rule than the rest.
LAYERS_OF_LARGEST_GEMMA = {"gemma2": 46, "gemma3": 62}


def config_of(header: GgufHeader) -> dict[str, Any]:
    """Make a complete configuration of a GGUF header.

    Raises:
        CheckpointCorrupt: a value is missing or cannot be.
        UnsupportedCheckpoint: the architecture, or a value, is one that we do not implement.
    """
    facts = _Facts(header)
    config = complete_config(facts.raw_config(), header.metadata.path, facts.spelled())
    facts.check(config)
    return config


class _Facts:
    """The header, asked for what its architecture calls its own."""

    def __init__(self, header: GgufHeader) -> None:
        self._header = header
        self._metadata = header.metadata
        self._path = header.metadata.path
        self._prefix = self._metadata.get_string("general.architecture")
        if self._prefix not in ARCHITECTURES:
            raise UnsupportedCheckpoint(
                f"{self._path}: the architecture {self._prefix!r} is not supported; "
                f"supported are {', '.join(ARCHITECTURES)}"
            )

    def raw_config(self) -> dict[str, Any]:
        raw: dict[str, Any] = {"model_type": ARCHITECTURES[self._prefix]}
        for key, name in (REQUIRED_SIZES | SIZES).items():
            raw[key] = self._find_int(name, is_required=key in REQUIRED_SIZES)
        for key, name in NUMBERS.items():
            raw[key] = self._metadata.find_float(f"{self._prefix}.{name}")
        raw["rms_norm_eps"] = self._metadata.get_float(f"{self._prefix}.{EPSILON}")
        raw |= self._rope() | self._gemma(raw)
        tensors = self._header.tensors
        experts = expert_facts(self._prefix, self._metadata, tensors)
        return {key: value for key, value in raw.items() if value is not None} | {
            "head_dim": raw["head_dim"],
            "vocab_size": self._vocab_size(),
            "attention_bias": "blk.0.attn_q.bias" in tensors,
            "mlp_bias": "blk.0.ffn_gate.bias" in tensors,
            "tie_word_embeddings": "output.weight" not in tensors,
            "bos_token_id": self._metadata.find_int("tokenizer.ggml.bos_token_id"),
            "eos_token_id": self._eos_token_ids(),
            **experts,
        }

    def spelled(self) -> dict[str, str]:
        names = {
            key: f"{self._prefix}.{name}"
            for key, name in (
                REQUIRED_SIZES | SIZES | NUMBERS | EXPERT_SIZES.get(self._prefix, {})
            ).items()
        }
        names["rms_norm_eps"] = f"{self._prefix}.{EPSILON}"
        ids = {key: f"tokenizer.ggml.{key}" for key in ("bos_token_id", "eos_token_id")}
        return names | ids

    def check(self, config: dict[str, Any]) -> None:
        """Hold the configuration to what else the file says."""
        if config["num_hidden_layers"] > len(self._header.tensors):
            raise CheckpointCorrupt(
                f"{self._path}: {self._prefix}.block_count is {config['num_hidden_layers']}, "
                f"but the file has only {len(self._header.tensors)} tensors"
            )
        if "kv_lora_rank" in config:
            return  # keys, values and what is rotated of them have sizes of their own
        for name in ("attention.value_length", "rope.dimension_count"):
            other = self._find_int(name)
            if other not in (None, config["head_dim"]):
                raise UnsupportedCheckpoint(
                    f"{self._path}: {self._prefix}.{name} is {other}, but a key has "
                    f"{config['head_dim']} elements; only equal sizes are supported"
                )

    def _rope(self) -> dict[str, Any]:
        if "rope_freqs.weight" in self._header.tensors:
            return {"rope_scaling": {"rope_type": "factors"}}
        prefix = f"{self._prefix}.rope.scaling"
        kind = self._metadata.find_string(f"{prefix}.type")
        if kind in (None, "none"):
            return {}
        extra = self._metadata.find_float(f"{prefix}.attn_factor")
        if extra not in (None, 1.0):
            raise UnsupportedCheckpoint(f"{self._path}: {prefix}.attn_factor is not supported")
        scaling = {
            "rope_type": kind,
            "factor": self._metadata.find_float(f"{prefix}.factor"),
            "original_max_position_embeddings": self._metadata.find_int(
                f"{prefix}.original_context_length"
            ),
            "beta_fast": self._metadata.find_float(f"{prefix}.yarn_beta_fast"),
            "beta_slow": self._metadata.find_float(f"{prefix}.yarn_beta_slow"),
            # Not in the file: gpt-oss's ramp begins and ends between two dimensions.
            "truncate": self._prefix != "gpt-oss",
        }
        if (growth := self._metadata.find_float(f"{prefix}.yarn_log_multiplier")) is not None:
            # DeepSeek's converter writes a tenth of it, in float32.
            scaling["mscale"] = scaling["mscale_all_dim"] = round(10 * growth, 6)
        return {"rope_scaling": scaling}

    def _gemma(self, raw: dict[str, Any]) -> dict[str, Any]:
        largest = LAYERS_OF_LARGEST_GEMMA.get(raw["model_type"])
        if largest is None:
            return {}
        scalar = raw["head_dim"]
        if raw["num_hidden_layers"] == largest and raw["num_attention_heads"]:
            scalar = raw["hidden_size"] // raw["num_attention_heads"]
        local = self._metadata.find_float(f"{self._prefix}.rope.freq_base_swa")
        return {
            "sliding_window": self._find_int("attention.sliding_window", is_required=True),
            "query_pre_attn_scalar": scalar,
            "rope_local_base_freq": local,
        }

    def _eos_token_ids(self) -> list[int]:
        """Tokens that end an answer: the end of the text, and of a turn where the file names it."""
        names = ("eos_token_id", "eot_token_id")
        found = (self._metadata.find_int(f"tokenizer.ggml.{name}") for name in names)
        return list(dict.fromkeys(token_id for token_id in found if token_id is not None))

    def _vocab_size(self) -> int:
        embedding = self._header.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise CheckpointCorrupt(
                f"{self._path}: the tensor 'token_embd.weight' is missing or is not a matrix"
            )
        return embedding.shape[0]

    def _find_int(self, name: str, *, is_required: bool = False) -> int | None:
        key = f"{self._prefix}.{name}"
        if isinstance(self._metadata.get(key), Array):
            raise UnsupportedCheckpoint(
                f"{self._path}: {key} differs from layer to layer, which is not supported"
            )
        return self._metadata.get_int(key) if is_required else self._metadata.find_int(key)

# SPDX-License-Identifier: Apache-2.0
"""A GGUF file's metadata in the keys of Hugging Face's config.json."""

from math import isfinite
from typing import Any

from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.checkpoint.gguf_header import GgufHeader
from tokenlight.checkpoint.gguf_metadata import Array

# general.architecture -> config.json's model_type
ARCHITECTURES = {"llama": "llama"}

# No real model comes near; what is above is a broken header.
MAX_SIZE = 1 << 24
MAX_CONTEXT_TOKENS = 1 << 31


def config_of(header: GgufHeader) -> dict[str, Any]:
    """Make config.json's keys of a GGUF header; every size is one that a model can have.

    Raises:
        CheckpointCorrupt: a value is missing or cannot be.
        UnsupportedCheckpoint: the architecture, or a value, is one that we do not implement.
    """
    return _Facts(header).config()


def eos_token_ids_of(header: GgufHeader) -> tuple[int, ...]:
    """Tokens that end an answer: the end of the text, and of a turn where the file names it."""
    facts = _Facts(header)
    found = (facts.token_id("eos_token_id"), facts.token_id("eot_token_id"))
    return tuple(dict.fromkeys(token_id for token_id in found if token_id is not None))


class _Facts:
    """The header, asked for what its architecture calls its own."""

    def __init__(self, header: GgufHeader) -> None:
        self._header = header
        self._metadata = header.metadata
        self._path = header.metadata.path
        self._prefix = self._metadata.get_string("general.architecture")

    def config(self) -> dict[str, Any]:
        if self._prefix not in ARCHITECTURES:
            raise UnsupportedCheckpoint(
                f"{self._path}: the architecture {self._prefix!r} is not supported; "
                f"supported are {', '.join(ARCHITECTURES)}"
            )
        hidden_size = self._size("embedding_length")
        num_heads = self._size("attention.head_count")
        return {
            "model_type": ARCHITECTURES[self._prefix],
            "vocab_size": self._vocab_size(),
            "hidden_size": hidden_size,
            "intermediate_size": self._size("feed_forward_length"),
            "num_hidden_layers": self._num_layers(),
            "num_attention_heads": num_heads,
            "num_key_value_heads": self._size("attention.head_count_kv", num_heads),
            "head_dim": self._head_dim(hidden_size, num_heads),
            "max_position_embeddings": self._size("context_length", limit=MAX_CONTEXT_TOKENS),
            "rms_norm_eps": self._positive("attention.layer_norm_rms_epsilon", 1e-5),
            "rope_theta": self._positive("rope.freq_base", 10000.0),
            "rope_scaling": self._rope_scaling(),
            "hidden_act": "silu",
            "tie_word_embeddings": "output.weight" not in self._header.tensors,
            "bos_token_id": self.token_id("bos_token_id"),
            "eos_token_id": self.token_id("eos_token_id"),
        }

    def token_id(self, name: str) -> int | None:
        key = f"tokenizer.ggml.{name}"
        token_id = self._metadata.find_int(key)
        if token_id is not None and not 0 <= token_id < self._vocab_size():
            raise self._corrupt(f"{key} is {token_id}; the vocabulary has {self._vocab_size()}")
        return token_id

    def _vocab_size(self) -> int:
        embedding = self._header.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise self._corrupt("the tensor 'token_embd.weight' is missing or is not a matrix")
        return embedding.shape[0]

    def _num_layers(self) -> int:
        num_layers = self._size("block_count")
        if num_layers > len(self._header.tensors):
            raise self._corrupt(
                f"{self._prefix}.block_count is {num_layers}, "
                f"but the file has only {len(self._header.tensors)} tensors"
            )
        return num_layers

    def _head_dim(self, hidden_size: int, num_heads: int) -> int:
        if f"{self._prefix}.attention.key_length" not in self._metadata and hidden_size % num_heads:
            raise self._corrupt(
                f"the hidden size {hidden_size} is not a multiple of the {num_heads} heads"
            )
        head_dim = self._size("attention.key_length", hidden_size // num_heads)
        for name in ("attention.value_length", "rope.dimension_count"):
            if (other := self._size(name, head_dim)) != head_dim:
                raise UnsupportedCheckpoint(
                    f"{self._path}: {self._prefix}.{name} is {other}, but a key has "
                    f"{head_dim} elements; only equal sizes are supported"
                )
        return head_dim

    def _rope_scaling(self) -> dict[str, Any] | None:
        key = f"{self._prefix}.rope.scaling.type"
        kind = self._metadata.find_string(key)
        if kind is None or kind == "none":
            return None
        raise UnsupportedCheckpoint(f"{self._path}: {key} is {kind!r}; only 'none' is supported")

    def _size(self, name: str, default: int | None = None, *, limit: int = MAX_SIZE) -> int:
        key = f"{self._prefix}.{name}"
        if isinstance(self._metadata.get(key), Array):
            raise UnsupportedCheckpoint(
                f"{self._path}: {key} differs from layer to layer, which is not supported"
            )
        found = self._metadata.find_int(key)
        if found is None:
            found = self._metadata.get_int(key) if default is None else default
        if not 1 <= found <= limit:
            raise self._corrupt(f"{key} is {found}; it must be from 1 to {limit}")
        return found

    def _positive(self, name: str, default: float) -> float:
        key = f"{self._prefix}.{name}"
        found = self._metadata.find_float(key)
        found = default if found is None else found
        if not isfinite(found) or found <= 0:
            raise self._corrupt(f"{key} is {found}; it must be a positive number")
        return found

    def _corrupt(self, what: str) -> CheckpointCorrupt:
        return CheckpointCorrupt(f"{self._path}: {what}")

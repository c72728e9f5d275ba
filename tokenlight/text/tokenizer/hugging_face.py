# SPDX-License-Identifier: Apache-2.0
"""A tokenizer out of a Hugging Face folder: tokenizer.json, and what its neighbours add to it."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, models

from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.checkpoint import Checkpoint
from tokenlight.text.tokenizer.codec import Codec, TokenizerParts, make_face
from tokenlight.text.tokenizer.pretokenizers import cuts_as_known
from tokenlight.text.tokenizer.sentencepiece import byte_of, piece_bytes
from tokenlight.text.tokenizer.spm_file import read_spm_file
from tokenlight.text.tokenizer.tokenizer_config import (
    added_tokens,
    named_tokens,
    read_tokenizer_config,
    with_added_tokens,
)
from tokenlight.text.tokenizer.vocabulary import Vocabulary, byte_level_pieces

_MODELS = (models.BPE, models.Unigram)


def hugging_face_parts(checkpoint: Checkpoint, files: Mapping[str, Path]) -> TokenizerParts:
    """Read the tokenizer.

    Raises:
        CheckpointCorrupt: a file cannot be read as what it is.
        UnsupportedCheckpoint: there is no tokenizer.json, or its kind is one that we do not have.
    """
    config = read_tokenizer_config(files)
    if "tokenizer.json" in files:
        return _FolderTokenizer(files["tokenizer.json"], config).parts(checkpoint)
    if "tokenizer.model" in files:
        return _spm_parts(checkpoint, files["tokenizer.model"], config)
    raise UnsupportedCheckpoint(
        f"{checkpoint.path}: has neither tokenizer.json nor tokenizer.model; make one with "
        f"transformers' AutoTokenizer.from_pretrained(...).save_pretrained(...), or name another "
        f"model's with --tokenizer (ModelConfig.tokenizer from Python)"
    )


class _FolderTokenizer:
    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self._path = path
        self._config = config
        self._rust = _load(path)
        for token in _missing_tokens(config, self._rust):
            self._rust.add_tokens([token])
        self._added: dict[int, AddedToken] = self._rust.get_added_tokens_decoder()

    def parts(self, checkpoint: Checkpoint) -> TokenizerParts:
        if not isinstance(self._rust.model, _MODELS):
            raise UnsupportedCheckpoint(
                f"{self._path}: a tokenizer of kind {type(self._rust.model).__name__} is not "
                f"supported; supported are BPE and Unigram"
            )
        bos = self._named("bos_token")
        bos_token_id = checkpoint.bos_token_id if bos is None else bos
        eos = self._named("eos_token")
        ends = checkpoint.eos_token_ids if eos is None else (*checkpoint.eos_token_ids, eos)
        decoder = _state(self._rust.decoder)
        is_byte_level = "ByteLevel" in decoder or "ByteLevel" in _state(self._rust.pre_tokenizer)
        return TokenizerParts(
            codec=self._codec(),
            vocabulary=self._vocabulary(is_byte_level=is_byte_level),
            bos_token_id=bos_token_id,
            eos_token_ids=tuple(dict.fromkeys(ends)),
            adds_bos=self._adds_bos(bos_token_id),
            adds_space=not is_byte_level and _takes_first_space(decoder),
        )

    def _codec(self) -> Codec:
        rust = self._rust
        added = [self._added[i] for i in sorted(self._added)]
        # By id, so that each gets the id again that it had: the library counts, and keeps no gaps.
        text = make_face(rust.model, rust.normalizer, rust.pre_tokenizer, added)
        text.encode_special_tokens = True
        cuts_words = cuts_as_known(_state(rust.pre_tokenizer))
        return Codec(reads_special=rust, reads_text=text, cuts_words=cuts_words)

    def _vocabulary(self, *, is_byte_level: bool) -> Vocabulary:
        num_tokens = max([self._rust.get_vocab_size() - 1, *self._added]) + 1
        tokens = [self._rust.id_to_token(i) or "" for i in range(num_tokens)]
        special = [i for i, token in self._added.items() if token.special]
        plain = {i: token.content.encode() for i, token in self._added.items()}
        if is_byte_level:
            return Vocabulary(byte_level_pieces(tokens, plain), special)
        if getattr(self._rust.model, "byte_fallback", True):
            for i, token in enumerate(tokens):
                byte = byte_of(token) if i not in plain else None
                if byte is not None:
                    plain[i] = byte
        return Vocabulary(piece_bytes(tokens, plain), special)

    def _named(self, name: str) -> int | None:
        """The id of a token that tokenizer_config.json names."""
        token = named_tokens(self._config).get(name)
        return None if token is None else self._rust.token_to_id(token)

    def _adds_bos(self, bos_token_id: int | None) -> bool:
        says = self._config.get("add_bos_token")
        if isinstance(says, bool):
            return says
        return bos_token_id in self._rust.encode("", add_special_tokens=True).ids[:1]


def _spm_parts(checkpoint: Checkpoint, path: Path, config: Mapping[str, Any]) -> TokenizerParts:
    model = read_spm_file(path)
    typed = with_added_tokens(model.typed, config)
    scores = [*model.scores, *[0.0] * (len(typed.tokens) - len(model.scores))]
    model = dataclasses.replace(model, typed=typed, scores=scores)
    ids = {token: i for i, token in enumerate(typed.tokens)}
    named = {name: ids.get(token) for name, token in named_tokens(config).items()}
    bos, eos = named.get("bos_token"), named.get("eos_token")
    says_bos = config.get("add_bos_token")
    return TokenizerParts(
        codec=model.make_codec(),
        vocabulary=model.make_vocabulary(),
        bos_token_id=checkpoint.bos_token_id if bos is None else bos,
        eos_token_ids=tuple(
            dict.fromkeys(i for i in (*checkpoint.eos_token_ids, eos) if i is not None)
        ),
        adds_bos=says_bos if isinstance(says_bos, bool) else True,
        adds_space=model.adds_space,
    )


def _load(path: Path) -> tokenizers.Tokenizer:
    try:
        rust = tokenizers.Tokenizer.from_file(str(path))
    except Exception as fault:  # the library raises nothing more precise
        raise CheckpointCorrupt(
            f"{path}: is no tokenizer that the library `tokenizers` {tokenizers.__version__} can "
            f"read: {fault}; download it again, or upgrade the library"
        ) from fault
    # A file may carry the lengths of someone's training run.
    rust.no_truncation()
    rust.no_padding()
    return rust


def _missing_tokens(config: Mapping[str, Any], rust: tokenizers.Tokenizer) -> list[AddedToken]:
    """Added tokens that only tokenizer_config.json knows, by id."""
    known = {token.content for token in rust.get_added_tokens_decoder().values()}
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return [
        AddedToken(token["content"], **{flag: bool(token.get(flag)) for flag in flags})
        for _, token in sorted(added_tokens(config).items())
        if token["content"] not in known
    ]


def _state(component: Any) -> str:
    """A component's own JSON; empty for none."""
    return "" if component is None else component.__getstate__().decode()


def _takes_first_space(decoder: str) -> bool:
    """Whether a decoder takes away the blank that a text was given at its start."""
    found = json.loads(decoder or "{}")
    steps = found.get("decoders", [found])
    for step in steps:
        if step.get("type") == "Strip" and step.get("start", 0) > 0:
            return True
        if step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never":
            return True
    return False

# SPDX-License-Identifier: Apache-2.0
"""How many strings and conversations become other ids here than in llama.cpp and transformers.

`make bench-breadth` turns the two counts into BAR lines; alone, this script prints them by what was
compared. The vocabularies are the tests' tiny ones and the default model's own.
"""

from __future__ import annotations

import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from tests.text.corpus import make_strings
from tests.text.template.pairs import Case, Pair, cases, make_pairs
from tests.text.tokenizer.golden_ids import (
    NUM_STRINGS,
    digests,
    golden_names,
    golden_strings,
    load_golden,
    write_vocabulary,
)
from tests.text.tokenizer.saved import MAKERS, folder, save
from tokenlight.base.env import read_env
from tokenlight.base.errors import RequestError
from tokenlight.checkpoint import Checkpoint, fetch_default_model, open_checkpoint
from tokenlight.text import Tokenizer


def count_tokenizer_mismatches() -> dict[str, int]:
    """Mismatches by what was compared, over ten thousand strings each.

    llama.cpp's ids are kept as digests of a hundred strings: there a mismatch is a digest.
    """
    with tempfile.TemporaryDirectory() as scratch:
        found = dict(_llama_cpp_mismatches(Path(scratch)))
        found |= dict(_folder_mismatches(Path(scratch)))
    default_model = open_checkpoint(fetch_default_model(read_env().cache_dir))
    return found | {"transformers: default model": _default_model_mismatches(default_model)}


def count_template_mismatches() -> dict[str, int]:
    """Conversations whose text or ids differ from transformers', by family."""
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        pairs = make_pairs(Path(scratch))
        for case in cases():
            for add_generation_prompt in (True, False):
                is_equal = _is_equal(
                    pairs[case.family], case, add_generation_prompt=add_generation_prompt
                )
                found[case.family] = found.get(case.family, 0) + (not is_equal)
    return found


def _llama_cpp_mismatches(directory: Path) -> Iterator[tuple[str, int]]:
    golden = load_golden()
    for name in golden_names():
        path = write_vocabulary(directory / f"{name}.gguf", name)
        tokenizer = Tokenizer.from_checkpoint(open_checkpoint(path))

        def encode(text: str, parse_special: bool, tokenizer: Tokenizer = tokenizer) -> list[int]:
            return tokenizer.encode(text, parse_special=parse_special, add_bos=False)

        ours = digests(golden_strings(name), encode)
        differing = sum(a != b for a, b in zip(ours, golden[name], strict=True))
        yield f"llama.cpp: {name}", differing


def _folder_mismatches(directory: Path) -> Iterator[tuple[str, int]]:
    from transformers import AutoTokenizer

    for name in sorted(MAKERS):
        save(name, directory / name)
        theirs = AutoTokenizer.from_pretrained(directory / name)
        ours = Tokenizer.from_checkpoint(folder(directory / name))
        specials = [*theirs.all_special_tokens, "<|tool|>", "<think>"]
        strings = make_strings(NUM_STRINGS, seed=31, specials=specials)
        yield (
            f"transformers: {name}",
            sum(ours.encode(text) != theirs.encode(text) for text in strings),
        )


def _default_model_mismatches(checkpoint: Checkpoint) -> int:
    """SmolLM's vocabulary in transformers' class that cuts as SmolLM's own tokenizer.json does."""
    from transformers import CohereTokenizer

    assert checkpoint.tokenizer is not None
    assert checkpoint.tokenizer.gguf is not None
    tokens = checkpoint.tokenizer.gguf.get_strings("tokenizer.ggml.tokens")
    merges = checkpoint.tokenizer.gguf.get_strings("tokenizer.ggml.merges")
    theirs = CohereTokenizer(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=[tuple(merge.split(" ")) for merge in merges],
        unk_token=tokens[0],
        bos_token=tokens[1],
        eos_token=tokens[2],
        pad_token=tokens[2],
    )
    ours = Tokenizer.from_checkpoint(checkpoint)
    # That class composes characters first, which SmolLM's does not: give it composed ones.
    strings = make_strings(NUM_STRINGS, seed=32, specials=tokens[:3])
    composed = [unicodedata.normalize("NFC", text) for text in strings]
    return sum(
        ours.encode(text) != theirs.encode(text, add_special_tokens=False) for text in composed
    )


def _is_equal(pair: Pair, case: Case, *, add_generation_prompt: bool) -> bool:
    options = {"tools": case.tools, "add_generation_prompt": add_generation_prompt}
    normal = case.template_messages
    try:
        text = pair.template.render(normal, **options)
        ids = pair.token_ids(normal, **options)
    except RequestError:
        return case.is_refused
    if case.is_refused:
        return False
    encoded = pair.theirs.apply_chat_template(normal, tokenize=True, **options)
    their_text = pair.theirs.apply_chat_template(normal, tokenize=False, **options)
    return bool(text == their_text and ids == encoded["input_ids"])


def main() -> int:
    """Print both counts by what was compared; 1 if anything differs."""
    tokenizers = count_tokenizer_mismatches()
    templates = count_template_mismatches()
    for name, count in (tokenizers | templates).items():
        print(f"{count:6} {name}")
    print(f"tokenizer_mismatches {sum(tokenizers.values())}")
    print(f"template_mismatches {sum(templates.values())}")
    return int(any(tokenizers.values()) or any(templates.values()))


if __name__ == "__main__":
    raise SystemExit(main())

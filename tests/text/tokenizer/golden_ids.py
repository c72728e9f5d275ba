# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp makes of ten thousand strings, as digests of a hundred strings each.

`make_golden.py` writes them. Where llama.cpp itself only approximates a model's own pattern,
strings on which the two may differ are left out, and other tests compare with the pattern.
"""

import json
import re
import zlib
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.text.corpus import make_strings
from tests.text.tokenizer.vocabularies import (
    CONTROL,
    GOLDEN_DIR,
    SPM_NAMES,
    USER_DEFINED,
    spm_vocabulary,
    write_bpe_gguf,
    write_spm_gguf,
)
from tokenlight.text.tokenizer.pretokenizers import PRE_TOKENIZER_KINDS

NUM_STRINGS = 10_000
CHUNK_STRINGS = 100
PATH = GOLDEN_DIR / "llama_cpp.json"

_ASCII = re.compile(r"[\x00-\x7f]*")
_NO_WIDE_SPACES = re.compile(r"[^\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*")
_COMPARABLE = {
    # llama.cpp reads "[^a-z]" for capitals and "[^A-Z]" for small letters.
    "tekken": _ASCII,
    "gpt-4o": _ASCII,
    # It looks for wide blanks in no class of characters.
    "deepseek-llm": _NO_WIDE_SPACES,
    "deepseek-coder": _NO_WIDE_SPACES,
    # It does not look at the case of letters at all.
    "kimi-k2": re.compile(r"[\x00-@\[-\x7f]*"),
}


def golden_names() -> list[str]:
    """The vocabularies: one name per set of patterns, as the others are the same tokenizer."""
    kinds = {kind: name for name, kind in reversed(PRE_TOKENIZER_KINDS.items())}
    return sorted([*kinds.values(), *SPM_NAMES])


def write_vocabulary(path: Path, name: str) -> Path:
    return write_spm_gguf(path, name) if name in SPM_NAMES else write_bpe_gguf(path, name)


def golden_strings(name: str, num_strings: int = NUM_STRINGS) -> list[str]:
    """The strings of one vocabulary; what is not comparable is empty, so that chunks stay put."""
    specials = spm_vocabulary(name).specials if name in SPM_NAMES else CONTROL + USER_DEFINED
    strings = make_strings(num_strings, seed=20260, specials=specials)
    comparable = _COMPARABLE.get(name)
    if comparable is None:
        return strings
    return [text if comparable.fullmatch(text) else "" for text in strings]


def digests(strings: Sequence[str], encode: Callable[[str, bool], Sequence[int]]) -> list[str]:
    """One digest per chunk, of ids with special tokens read and left as text."""
    found = []
    for start in range(0, len(strings), CHUNK_STRINGS):
        checksum = 0
        for text in strings[start : start + CHUNK_STRINGS]:
            for parse_special in (True, False):
                ids = array("i", [*encode(text, parse_special), -1])
                checksum = zlib.crc32(ids.tobytes(), checksum)
        found.append(f"{checksum:08x}")
    return found


def load_golden() -> dict[str, list[str]]:
    found: dict[str, str] = json.loads(PATH.read_text())
    return {name: text.split() for name, text in found.items()}

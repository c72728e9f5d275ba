# SPDX-License-Identifier: Apache-2.0
r"""How byte-level BPE vocabularies cut text into words before merging: `tokenizer.ggml.pre`.

A kind is a list of patterns: each cuts what the one before left, and matches and gaps alike stay
pieces. The patterns are the ones that the models were trained with (Oniguruma syntax), written so
that no text takes quadratic time: `\s+$` is anchored at the start of its run as well.
"""

import json
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, pre_tokenizers

from tokenlight.base.errors import UnsupportedCheckpoint


@dataclass(frozen=True, slots=True)
class PreTokenizerKind:
    """One way to cut, and what else a kind's name says of its vocabulary."""

    patterns: tuple[str, ...]
    ignores_merges: bool = False
    """Whether a word that is a token stays one, even where the merges would not make it."""
    adds_bos: bool = False
    """Whether a text starts with the begin-of-text token where the file does not say."""


_SUFFIXES = "'s|'t|'re|'ve|'m|'ll|'d"
_DIGIT = r"\p{N}"
_TRIPLES = r"\p{N}{1,3}"
_SPACES = r"\s+(?!\S)|\s+"
_GPT2 = rf"{_SUFFIXES}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}"


def _words(digits: str, *, word: str = r"\p{L}", symbol: str = r"[^\s\p{L}\p{N}]") -> str:
    """GPT-4's: a word takes one symbol before it, symbols take the line ends behind them."""
    return (
        rf"(?i:{_SUFFIXES})|[^\r\n\p{{L}}\p{{N}}]?{word}+|{digits}"
        rf"| ?{symbol}+[\r\n]*|\s*[\r\n]+|{_SPACES}"
    )


def _cased_words(
    digits: str, *, suffixes: str = "", but: str = "", line_ends: str = r"\r\n/"
) -> str:
    """GPT-4o's: as GPT-4's, and a word ends where capitals follow small letters."""
    upper = rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]"
    lower = rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]"
    symbol = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{symbol}{upper}*{lower}+{suffixes}|{symbol}{upper}+{lower}*{suffixes}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[{line_ends}]*|\s*[\r\n]+|{_SPACES}"
    )


def _class(spans: str) -> str:
    """A character class of code points in hexadecimal: `41-5a b5`."""
    bounds = (span.split("-") for span in spans.split())
    return "".join("-".join(rf"\x{{{point}}}" for point in span) for span in bounds)


# The cased letters as DeepSeek listed them: a newer Unicode has more, and they stay out.
_DEEPSEEK_LETTERS = _class(
    "41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376-377 37b-37d 37f "
    "386 388-38a 38c 38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd "
    "1c90-1cba 1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 "
    "1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 "
    "1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 2115 "
    "2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f 2145-2149 214e 2183-2184 "
    "2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2-2cf3 a640-a66d a680-a69b a722-a76f a771-a787 "
    "a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3 "
    "104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943 "
)
_DEEPSEEK_SYMBOLS = _class("21-2f 3a-7e 2018-201f 3000-3002 ff01-ff0f ff1a-ff5e")
_CJK = rf"[{_class('800-9fa5 ac00-d7ff')}]+"
_HAN_AND_KANA = rf"[{_class('3040-30ff 4e00-9fa5')}]+"
_DEEPSEEK_WORDS = (
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|\s*[\r\n]+|{_SPACES}"
)
_MARKED, _MARKLESS_SYMBOL = r"[\p{L}\p{M}]", r"[^\s\p{L}\p{M}\p{N}]"
_BLOOM = rf" ?[^\s()|.,!?{_class('60c 6d4 964 2026 3001 3002 ff0c')}]+"
_ASCII_TRIPLES = "[0-9][0-9][0-9]"

_LLAMA3 = (_words(_TRIPLES),)
_BAILING = PreTokenizerKind(
    (
        r"(?i:'s|'d|'m|'t|'ll|'ve|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]|{_SPACES}",
    )
)
_GPT4O = PreTokenizerKind((_cased_words(_TRIPLES, suffixes=rf"(?i:{_SUFFIXES})?"),))

_DEEPSEEK = PreTokenizerKind(
    (
        r"[\r\n]",
        rf"\s?[{_DEEPSEEK_LETTERS}]+",
        rf"\s?[{_DEEPSEEK_SYMBOLS}]+",
        r"(?<!\s)\s+\z",
        _CJK,
        r"\p{N}+",
    )
)
_SEED_CODER = PreTokenizerKind(
    (
        rf"(?i:{_SUFFIXES})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|{_SPACES}",
    )
)
_KIMI = PreTokenizerKind(
    (
        r"\p{Han}+|"
        + _cased_words(
            _TRIPLES, suffixes=rf"(?i:{_SUFFIXES})?", but=r"&&[^\p{Han}]", line_ends=r"\r\n"
        ),
    )
)

_NAMED = (
    (("default",), PreTokenizerKind((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", _ASCII_TRIPLES))),
    (
        (
            "gpt-2", "phi-2", "olmo", "mpt", "jais", "trillion", "exaone4", "granite-docling",
            "gigachat", "a.x-4.0", "mellum", "modern-bert", "roberta-bpe", "jina-es", "jina-de",
            "jina-v2-es", "jina-v2-de", "jina-v1-en", "jina-v2-code",
        ),
        PreTokenizerKind((_GPT2,)),
    ),
    (
        (
            "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
            "mellum2",
        ),
        PreTokenizerKind((_DIGIT, _GPT2)),
    ),
    (
        (
            "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0",
            "lfm2", "jina-v5-nano",
        ),
        PreTokenizerKind(_LLAMA3, ignores_merges=True, adds_bos=True),
    ),
    (("dbrx", "smaug-bpe", "chatglm-bpe"), PreTokenizerKind(_LLAMA3)),
    (("glm4", "glm5"), PreTokenizerKind(_LLAMA3, ignores_merges=True)),
    (
        (
            "qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "grok-2", "solar-open",
            "kormo", "f2llmv2",
        ),
        PreTokenizerKind((_words(_DIGIT),)),
    ),
    (("qwen35",), PreTokenizerKind((_words(_DIGIT, word=_MARKED, symbol=_MARKLESS_SYMBOL),))),
    (("deepseek-llm",), _DEEPSEEK),
    (
        ("deepseek-coder",),
        PreTokenizerKind((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, _DIGIT)),
    ),
    (
        ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"),
        PreTokenizerKind((_TRIPLES, _HAN_AND_KANA, _DEEPSEEK_WORDS)),
    ),
    (("falcon",), PreTokenizerKind((r"[\p{P}$+<=>^~|`]+", _GPT2, _ASCII_TRIPLES))),
    (("bloom", "poro-chat", "gpt3-finnish"), PreTokenizerKind((_BLOOM,))),
    (("viking",), PreTokenizerKind((_BLOOM, _DIGIT))),
    (("tekken",), PreTokenizerKind((_cased_words(_DIGIT),), ignores_merges=True, adds_bos=True)),
    (("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _GPT4O),
    (("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING),
    (("seed-coder",), _SEED_CODER),
    (("kimi-k2",), _KIMI),
)  # fmt: skip
PRE_TOKENIZER_KINDS = {name: kind for names, kind in _NAMED for name in names}
_PATTERNS = {pattern for _, kind in _NAMED for pattern in kind.patterns}


def get_kind(name: str) -> PreTokenizerKind:
    """Look up a kind.

    Raises:
        UnsupportedCheckpoint: there is none of that name.
    """
    kind = PRE_TOKENIZER_KINDS.get(name)
    if kind is None:
        raise UnsupportedCheckpoint(
            f"the pre-tokenizer {name!r} (tokenizer.ggml.pre) is not supported; supported are "
            f"{', '.join(sorted(PRE_TOKENIZER_KINDS))}"
        )
    return kind


def make_pre_tokenizer(kind: PreTokenizerKind) -> pre_tokenizers.PreTokenizer:
    """Cut by each pattern in turn, then write bytes as their stand-ins."""
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in kind.patterns]
    stand_ins = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*cuts, stand_ins])


def cuts_as_known(state: str) -> bool:
    """Whether a pre-tokenizer, given as its own JSON, cuts by patterns of this file alone."""
    if not state:
        return False
    found = json.loads(state)
    steps = found.get("pretokenizers", [found])
    return all(_is_known(step) for step in steps)


def _is_known(step: dict[str, Any]) -> bool:
    if step.get("type") == "ByteLevel":
        # Its own pattern is GPT-2's.
        return not step.get("add_prefix_space")
    if step.get("type") == "Digits":
        return True
    pattern = step.get("pattern") or {}
    is_isolated = step.get("type") == "Split" and step.get("behavior") == "Isolated"
    return is_isolated and not step.get("invert") and pattern.get("Regex") in _PATTERNS

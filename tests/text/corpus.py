# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF001  (characters that look like others are the point)
"""Strings that tokenizers stumble over, as many as asked for, the same for the same seed.

Single characters are taken from what Unicode had in version 3.2 and from listed emoji: what was
added later is a letter to one Unicode table and nothing to another, so implementations differ.
"""

import random
import unicodedata
from collections.abc import Callable, Sequence

_STABLE = unicodedata.ucd_3_2_0

_SCRIPTS = (
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x587),
    (0x5D0, 0x5EA), (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xE00, 0xE5B),
    (0xF00, 0xFBC), (0x10A0, 0x10FF), (0x1200, 0x137C), (0x13A0, 0x13F4), (0x1780, 0x17E9),
    (0x1E00, 0x1EF9), (0x1F00, 0x1FFE), (0x2000, 0x206F), (0x2070, 0x20B1), (0x2100, 0x218F),
    (0x2190, 0x23CE), (0x2460, 0x27BE), (0x3000, 0x303F), (0x3041, 0x30FF), (0x3105, 0x318E),
    (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xFB00, 0xFDFB), (0xFE30, 0xFFEF), (0x10300, 0x10323),
    (0x1D400, 0x1D7FF), (0x20000, 0x20100),
)  # fmt: skip

_EMOJI = """
😀 😂 🥰 🤖 👍 👍🏽 👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 🇯🇵 ❤️ ☎️ 1️⃣ #️⃣ ✨ 🚀 🦜 🫠 🧑🏿‍🚀
"""
_WORDS = """
the The THE of and don't DON'T I'm we've They'll it's 's 'S 'll ' '' o'clock naïve café Straße
ÜBER über İstanbul ﬁre œuvre hello world Hello World HelloWorld helloWorld XMLHttpRequest
snake_case_name kebab-case U.S.A. e.g. 3.14 1,000,000 2024-01-31 12:30 0xDEADBEEF 1e-5 100% #1 $5
@user user@example.com https://example.com/a?b=c&d=e#f C:\\path\\to ~/.bashrc a/b//c ... !? -- — –
привет мир Ελλάδα שלום مرحبا नमस्ते สวัสดี こんにちは カタカナ 漢字 한국어 中文字符
١٢٣ ४५६ Ⅳ ² ½ x² H₂O ｆｕｌｌ １２３
"""
_CODE = (
    "def f(x: int) -> int:\n    return x**2  # square\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n",
    'if err != nil {\n\treturn fmt.Errorf("bad: %w", err)\n}\n',
    "const f = async ({a, b}) => `${a}-${b}`;\r\n",
    "SELECT * FROM t WHERE id='x' AND y>=10;--\n",
    '{"role": "user", "content": "a\\nb", "n": [1, 2, 3]}',
    '<div class="a b">\n  <p>&nbsp;</p>\n</div>\n\n',
    "#include <vector>\n#define X(a,b) ((a)<<(b))\n",
    '    """Doc."""\n\n\n        pass\n',
    "$ ls -la | grep '^d' > /dev/null 2>&1 &\n",
    'fn main() { let v: Vec<&\'static str> = vec![]; println!("{:?}", v); }',
    "@@ -1,3 +1,4 @@\n-old\n+new\n context\n",
    "a&&b||!c<=d>=e==f!=g===h=>i->j::k...l\n",
)
_SPACES = " \t\n\r\v\f\u00a0\u1680\u2002\u2003\u2009\u2028\u2029\u202f\u205f\u3000"


def make_strings(num_strings: int, *, seed: int, specials: Sequence[str] = ()) -> list[str]:
    """Make strings of up to some hundred characters.

    Args:
        num_strings: how many.
        seed: of all chances taken.
        specials: special tokens to strew in, whole and broken.
    """
    draw = random.Random(seed)
    return [_string(draw, specials) for _ in range(num_strings)]


def _string(draw: random.Random, specials: Sequence[str]) -> str:
    kinds: list[Callable[[random.Random], str]] = [
        _words, _words, _code, _code, _spaces, _script, _script, _emoji, _digits, _mixed, _repeated,
    ]  # fmt: skip
    pieces = [draw.choice(kinds)(draw) for _ in range(draw.randint(1, 6))]
    if specials and draw.random() < 0.4:
        for _ in range(draw.randint(1, 4)):
            special = draw.choice(specials)
            if draw.random() < 0.3:
                special = special[: draw.randrange(1, len(special) + 1)]
            pieces.insert(draw.randint(0, len(pieces)), special)
    return "".join(pieces)


def _words(draw: random.Random) -> str:
    words = _WORDS.split()
    joint = draw.choice([" ", " ", " ", "", "  ", "\n", ", "])
    return joint.join(draw.choice(words) for _ in range(draw.randint(1, 12)))


def _code(draw: random.Random) -> str:
    lines = [draw.choice(_CODE) for _ in range(draw.randint(1, 3))]
    indent = draw.choice(["", "    ", "\t", "  "])
    return "".join(indent + line for line in lines)


def _spaces(draw: random.Random) -> str:
    if draw.random() < 0.5:
        return draw.choice(" \n\t") * draw.randint(1, 40)
    return "".join(draw.choice(_SPACES[:4] * 4 + _SPACES) for _ in range(draw.randint(1, 12)))


def _stable(draw: random.Random, first: int, last: int) -> str:
    for _ in range(50):
        character = chr(draw.randint(first, last))
        if _STABLE.category(character) not in ("Cn", "Cs", "Co"):
            return character
    return " "


def _script(draw: random.Random) -> str:
    first, last = draw.choice(_SCRIPTS)
    return "".join(
        " " if draw.random() < 0.15 else _stable(draw, first, last)
        for _ in range(draw.randint(1, 30))
    )


def _emoji(draw: random.Random) -> str:
    joint = draw.choice(["", " "])
    return joint.join(draw.choice(_EMOJI.split()) for _ in range(draw.randint(1, 6)))


def _digits(draw: random.Random) -> str:
    if draw.random() < 0.3:
        return "".join(draw.choice("٠١٢३४५１２³¼Ⅷ①7") for _ in range(draw.randint(1, 9)))
    return "".join(draw.choice("0123456789") for _ in range(draw.randint(1, 25)))


def _mixed(draw: random.Random) -> str:
    return "".join(_stable(draw, *draw.choice(_SCRIPTS)) for _ in range(draw.randint(1, 25)))


def _repeated(draw: random.Random) -> str:
    return draw.choice("=-_#*.aA1 \n!é中\u0301") * draw.randint(2, 70)

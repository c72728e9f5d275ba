# SPDX-License-Identifier: Apache-2.0
"""Reads headed calls: a head that names the tool, then the arguments as JSON."""

import re

from tokenlight.text.parsing.format import HeadedCall
from tokenlight.text.parsing.forms.json_call import read_container
from tokenlight.text.parsing.output import Output
from tokenlight.text.parsing.source import Malformed, Pull, Source

_HEAD_CHARS = 512
_HEAD_RUN = re.compile(r"[^{]*")


def read_headed_call(src: Source, out: Output, form: HeadedCall) -> Pull[None]:
    """Consume one call, from after `form.open` on."""
    text = yield from _read_head(src, form)
    match = form.head.fullmatch(text)
    if match is None or not match["name"].strip():
        raise Malformed("bad_name")
    id_ = match.groupdict().get("id") or ""
    out.start_call(match["name"].strip(), id_)
    if (yield from src.peek()) == "{":
        yield from read_container(src, out.arguments)
    out.end_arguments()
    out.end_call()
    for marker in form.tail:
        yield from src.space()
        yield from src.skip(marker)
        src.drop_cut((marker,))


def _read_head(src: Source, form: HeadedCall) -> Pull[str]:
    """Consume up to the arguments' brace, or the call's last marker where it has no arguments."""
    end = form.tail[-1] if form.tail else ""
    length = 0
    while True:
        text = src.text
        match = _HEAD_RUN.match(text, src.at)
        brace = match.end() if match else src.at
        stop = text.find(end, src.at, brace) if end else -1
        length = (stop if stop >= 0 else brace) - src.at
        if length > _HEAD_CHARS:
            raise Malformed("bad_name")
        if stop >= 0 or brace < len(text):
            return src.take(src.at + length)
        yield from src.wait()

# SPDX-License-Identifier: Apache-2.0
"""What an answer must look like, as vLLM's clients ask for it: structured_outputs, guided_*."""

from __future__ import annotations

import asyncio

from llguidance.gbnf_to_lark import any_to_lark

from tokenlight import wire
from tokenlight.base.errors import InvalidRequest, UnsupportedParameter
from tokenlight.server.schemas.parameters import GenerationFields, Json
from tokenlight.text.conversation import Shape, spelled_object
from tokenlight.text.grammar.check import check_rules
from tokenlight.text.grammar.rules import shape_rules

_UNSUPPORTED = {
    "disable_additional_properties": "say additionalProperties in the schema",
    "whitespace_pattern": "leave it out: JSON comes in one form",
    "structural_tag": "use tools, or one of json, regex, choice and grammar",
}
MAX_WRITTEN_CHARS = 1 << 17
"""Of a regex, a grammar, choices: compiling takes as long as their length squared, seconds here."""


def decode_shape(fields: GenerationFields) -> Shape | None:
    """The one shape that these fields ask for; None for none.

    Raises:
        InvalidRequest: they ask for more than one, for what is no schema or grammar, or for more
            than can be compiled in time.
        UnsupportedParameter: they ask for what vLLM has beyond these.
    """
    for name, advice in _UNSUPPORTED.items():
        if getattr(fields.structured_outputs, name, None):
            raise UnsupportedParameter(f"structured_outputs.{name}", advice=advice)
    found = list(_shapes(fields))
    if len(found) > 1:
        raise InvalidRequest(
            f"{found[0].param!r} and {found[1].param!r} both say what the answer must look like; "
            f"send one",
            param=found[1].param,
        )
    if not found:
        return None
    _check_length(found[0])
    return found[0]


def _check_length(shape: Shape) -> None:
    written = shape.lark or shape.regex or "".join(shape.choice or ())
    if len(written) > MAX_WRITTEN_CHARS:
        raise InvalidRequest(
            f"{shape.param!r} has {len(written)} characters, at most {MAX_WRITTEN_CHARS} are "
            f"allowed; shorten it",
            param=shape.param,
        )


async def shape_grammar(shape: Shape) -> wire.Grammar:
    """The grammar of a text that is nothing but this shape.

    Raises:
        InvalidRequest: it cannot be enforced.
    """
    rules = shape_rules(shape)
    await asyncio.to_thread(check_rules, rules, param=shape.param)
    return wire.Grammar(rules)


def _shapes(fields: GenerationFields) -> list[Shape]:
    asked = fields.structured_outputs
    found = [
        _json("guided_json", fields.guided_json),
        _regex("guided_regex", fields.guided_regex),
        _choice("guided_choice", fields.guided_choice),
        _grammar("guided_grammar", fields.guided_grammar),
    ]
    if asked is not None:
        at = "structured_outputs"
        found += [
            _json(f"{at}.json", asked.json),
            _json(f"{at}.json_object", {"type": "object"} if asked.json_object else None),
            _regex(f"{at}.regex", asked.regex),
            _choice(f"{at}.choice", asked.choice),
            _grammar(f"{at}.grammar", asked.grammar),
        ]
    return [shape for shape in found if shape is not None]


def _json(param: str, sent: Json | None) -> Shape | None:
    if sent is None:
        return None
    schema = sent if isinstance(sent, dict) else spelled_schema(param, sent)
    return Shape(json_schema=schema, param=param)


def _regex(param: str, sent: str | None) -> Shape | None:
    return None if sent is None else Shape(regex=sent, param=param)


def _choice(param: str, sent: list[str] | None) -> Shape | None:
    return Shape(choice=tuple(sent), param=param) if sent else None


def _grammar(param: str, sent: str | None) -> Shape | None:
    """Lark as it is; GBNF, as llama.cpp has it, made Lark."""
    if sent is None:
        return None
    try:
        return Shape(lark=any_to_lark(sent), param=param)
    except Exception as fault:  # the converter raises whatever its parser stumbles on
        raise InvalidRequest(
            f"{param!r} cannot be read: {fault}; send Lark or GBNF", param=param
        ) from None


def spelled_schema(param: str, sent: str) -> dict[str, object]:
    """A JSON Schema that was sent as a text."""
    schema = spelled_object(sent)
    if schema is None:
        raise InvalidRequest(f"{param!r} must be a JSON Schema: an object", param=param)
    return schema

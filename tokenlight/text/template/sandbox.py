# SPDX-License-Identifier: Apache-2.0
"""Jinja2 as chat templates know it, for templates that nobody has read.

A template comes with a checkpoint and runs in the process that serves everybody. Jinja2's sandbox
keeps it from Python's internals and from changing its input; this file adds what transformers gives
to templates, and puts the bounds of `bounds.py` where one could spend time and memory without end.
"""

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes, pass_environment
from jinja2.compiler import CodeGenerator, Frame, MacroRef
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import do_format, do_indent, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from tokenlight.text.template import bounds

# Page-making filters and text that no chat template needs and that make much of little.
_LEFT_OUT_FILTERS = (
    "batch",
    "center",
    "pprint",
    "random",
    "slice",
    "urlize",
    "wordwrap",
    "xmlattr",
)
_LEFT_OUT_GLOBALS = ("lipsum",)
_DICT_ATTRIBUTES = frozenset(dir(dict))


class RaisedByTemplate(TemplateError):
    """The template's own word on these messages, by `raise_exception`."""


class GenerationTag(Extension):
    """`{% generation %}` marks what the assistant says, for training; here it only wraps it."""

    tags = {"generation"}  # noqa: RUF012  (Jinja2's own way)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class MeteredCode(CodeGenerator):
    """Compiles templates so that each turn of a loop and each call of a macro spends budget."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802  (a visitor's name)
        node.body.insert(0, _spend())
        super().visit_For(node, frame)

    def macro_body(
        self, node: nodes.Macro | nodes.CallBlock, frame: Frame
    ) -> tuple[Frame, MacroRef]:
        node.body.insert(0, _spend())
        return super().macro_body(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.join_texts((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment that chat templates are compiled in."""

    code_generator_class = MeteredCode
    concat = staticmethod(bounds.concatenate)
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, LoopControlExtension]
        )
        for name in _LEFT_OUT_FILTERS:
            del self.filters[name]
        for name in _LEFT_OUT_GLOBALS:
            del self.globals[name]
        self.filters |= {
            "format": _format,
            "indent": _indent,
            "join": _join,
            "replace": _replace,
            "tojson": _tojson,
        }
        self.globals |= {
            "dict": _Dict(),
            "namespace": _Namespace,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }

    def getattr(self, obj: Any, attribute: str) -> Any:
        """As the base class does, without raising and catching for each field of a message."""
        if type(obj) is dict and attribute in obj and attribute not in _DICT_ATTRIBUTES:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def spend(self) -> None:
        bounds.BUDGET.get().spend_step()

    def join_texts(self, parts: Iterable[object]) -> str:
        return bounds.concatenate(map(str, parts))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        bounds.check_operation(operator, left, right)
        return super().call_binop(context, operator, left, right)

    # Two underscores as in the base class: templates pass keyword arguments of any name.
    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        bounds.check_method(__obj, args)
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            bounds.check_format(value.__self__)
        return wrapped


def _spend() -> nodes.Node:
    call = nodes.Call(nodes.EnvironmentAttribute("spend"), [], [], None, None)
    return nodes.ExprStmt(call)


class _Dict:
    """`dict(...)` without the class behind it."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


class _Namespace(Namespace):
    """A namespace that stores no name by which Python's internals are reached."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *given = args
        for name in dict(*given, **kwargs):
            _check_name(name)
        Namespace.__init__(self, *given, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot store {name!r}: it starts with an underscore")


def _raise_exception(message: object) -> NoReturn:
    raise RaisedByTemplate(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    bounds.check_padding(indent)
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _format(text: str, *args: Any, **kwargs: Any) -> str:
    bounds.check_printf(text)
    return do_format(text, *args, **kwargs)


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    bounds.check_padding(width)
    return do_indent(text, width, first, blank)


@pass_environment
def _join(
    environment: Sandbox, parts: Iterable[Any], joint: str = "", attribute: str | None = None
) -> str:
    if attribute is not None:
        parts = map(make_attrgetter(environment, attribute), parts)
    texts = [str(part) for part in parts]
    bounds.check_join(str(joint), texts)
    return str(joint).join(texts)


def _replace(text: object, old: str, new: str, count: int | None = None) -> str:
    bounds.check_replace(str(text), old, new)
    return str(text).replace(old, new, -1 if count is None else count)

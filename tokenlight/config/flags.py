# SPDX-License-Identifier: Apache-2.0
"""Flags made from the config dataclasses.

Names come from each field's metadata, help from its docstring, the type from its annotation. A
value that is not given stays out of the result: every default is written once, in its dataclass.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import inspect
import itertools
import math
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, Literal, NoReturn, TypeVar

from tokenlight.base.errors import ConfigError
from tokenlight.config.field import FLAG

# Flags of other servers that are refused on purpose, with the reason shown to whoever types them.
REFUSED = {
    "--trust-remote-code": (
        "code from a checkpoint is never run here, every architecture is implemented in "
        "tokenlight/models; remove the flag"
    ),
}

_Config = TypeVar("_Config")


def finite(text: str) -> float:
    """A typed number that is one."""
    number = float(text)
    if not math.isfinite(number):  # NaN passes every comparison with a bound
        raise ValueError(f"{text} is no finite number")
    return number


_KINDS: dict[type, tuple[Callable[[str], Any], str]] = {
    int: (int, "a whole number"),
    float: (finite, "a finite number"),
    str: (str, "text"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One field of a config dataclass, as users type it."""

    path: str
    """Where the value belongs, dotted from the root config: `cache.block_tokens`."""
    name: str | None
    positional: str | None
    help: str
    kind: type
    choices: tuple[str, ...]
    on: str | None
    off: str | None
    default: object
    is_list: bool
    """Whether several values may follow the flag."""

    @property
    def names(self) -> tuple[str, ...]:
        """As what it can be typed: a switch has a second name, which turns it off."""
        if self.name is None:
            return ()
        return (self.name,) if self.on is None else (self.name, f"--no-{self.name[2:]}")

    @property
    def shown(self) -> str:
        """How the flag is written in help and documents."""
        return ", ".join(self.names) or self.positional or self.path

    @property
    def shown_default(self) -> str:
        """The default as users would type it; empty if the help alone can say what it is."""
        if self.on is not None:
            return "on" if self.default == self.on else "off"
        return "" if self.default in (None, "", ()) else str(self.default)

    def parse(self, text: str) -> object:
        """Turn typed text into the field's value.

        Raises:
            ConfigError: the text is not of the field's type, or not among its choices.
        """
        asked = self.name or self.positional
        if self.choices:
            if text not in self.choices:
                raise ConfigError(f"{asked} must be {_either(self.choices)}, got {text!r}")
            return text
        if text or self.default != "" or self.positional:  # a default may be written out
            refuse_empty(asked or self.path, text)
        if not _is_text(text):
            raise ConfigError(
                f"{asked} {text!a} is not text in this locale ({sys.getfilesystemencoding()}); "
                f"set LC_ALL=C.UTF-8, or give it a name in UTF-8"
            )
        convert, wanted = _KINDS[self.kind]
        try:
            return convert(text)
        except ValueError:
            raise ConfigError(f"{asked} must be {wanted}, got {text!r}") from None


def refuse_empty(name: str, text: str) -> None:
    """Raises ConfigError where "$MODEL" was typed and the variable is not set."""
    if not text.strip():
        raise ConfigError(f"{name} is empty; give it a value, or leave it out")


def flags_of(config: type, prefix: str = "") -> Iterator[Flag]:
    """The flags of a config dataclass and of the dataclasses inside it, in written order."""
    docs = field_docs(config)
    hints = typing.get_type_hints(config)
    for field in fields(config):
        hint = hints[field.name]
        if is_dataclass(hint):
            yield from flags_of(typing.cast(type, hint), f"{prefix}{field.name}.")
            continue
        declared = field.metadata.get(FLAG)
        if declared is None:
            continue
        kind, choices, is_list = _kind(hint)
        yield Flag(
            path=prefix + field.name,
            name=declared["name"],
            positional=declared["positional"],
            help=docs[field.name],
            kind=kind,
            choices=choices,
            on=declared["on"],
            off=declared["off"],
            default=_default(field),
            is_list=is_list,
        )


def add_flags(parser: argparse.ArgumentParser, *configs: type) -> None:
    """Give the parser every flag of the configs; each lands in the namespace only when typed."""
    for config in configs:
        for flag in flags_of(config):
            _add(parser, flag)
    for name in REFUSED:
        parser.add_argument(name, nargs="?", action=_Refuse, help=argparse.SUPPRESS)


def given(namespace: argparse.Namespace, config: type) -> dict[str, object]:
    """What was typed for this config class: path -> value."""
    typed = vars(namespace)
    return {flag.path: typed[flag.path] for flag in flags_of(config) if flag.path in typed}


def build(config: type[_Config], values: Mapping[str, object]) -> _Config:
    """Make a config object from `path -> value`; what is absent keeps its default.

    Raises:
        ConfigError: a value is refused by the dataclass it belongs to.
    """
    arguments: dict[str, object] = {}
    hints = typing.get_type_hints(config)
    for field in fields(typing.cast(Any, config)):
        hint = hints[field.name]
        if is_dataclass(hint):
            inner = f"{field.name}."
            below = {p.removeprefix(inner): v for p, v in values.items() if p.startswith(inner)}
            arguments[field.name] = build(typing.cast(type, hint), below)
        elif field.name in values:
            arguments[field.name] = values[field.name]
    return config(**arguments)


def nearest(typed: str, known: Sequence[str]) -> str:
    """` (did you mean X?)` for a mistyped name, or nothing when none is close."""
    close = difflib.get_close_matches(typed, known, n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


class FlagParser(argparse.ArgumentParser):
    """argparse that names the nearest flag, guesses no abbreviation, and raises, never exits."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", _HelpFormatter)
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")

    def parse_strictly(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse everything.

        Raises:
            ConfigError: an unknown flag, a stray argument, or a value that does not parse.
        """
        namespace, unknown = self.parse_known_args(argv)
        if unknown:
            self._refuse_unknown(unknown[0])
        return namespace

    def _refuse_unknown(self, typed: str) -> NoReturn:
        name = typed.partition("=")[0]
        if not name.startswith("-"):
            raise ConfigError(f"unexpected argument {typed!r}; see {self.prog} --help")
        known = [option for action in self._actions for option in action.option_strings]
        raise ConfigError(f"unknown flag {name}{nearest(name, known)}; see {self.prog} --help")


class _HelpFormatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=100)


class _Refuse(argparse.Action):
    def __call__(self, *_: object, **__: object) -> None:
        name = self.option_strings[0]
        raise ConfigError(f"{name} is refused: {REFUSED[name]}")


class _OfFlag(argparse.Action):
    def __init__(self, *, flag: Flag, **options: Any) -> None:
        super().__init__(**options)
        self.flag = flag


class _Store(_OfFlag):
    """Parse through the flag itself, so that the message is ours and names what is allowed."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        flag = self.flag
        value = tuple(map(flag.parse, values)) if flag.is_list else flag.parse(values)
        setattr(namespace, self.dest, value)


class _Switch(_OfFlag):
    """One entry of the help for both names of a switch."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        is_on = option_string == self.flag.name
        setattr(namespace, self.dest, self.flag.on if is_on else self.flag.off)


def _add(parser: argparse.ArgumentParser, flag: Flag) -> None:
    text = flag.help
    if flag.shown_default and "Default" not in text:
        text += f" Default: {flag.shown_default}."
    text = text.replace("%", "%%")
    if flag.positional is not None:
        parser.add_argument(
            flag.path,
            action=_Store,
            flag=flag,
            metavar=flag.positional,
            nargs="?",
            default=argparse.SUPPRESS,
            help=text,
        )
        return
    if flag.on is not None:
        parser.add_argument(
            *flag.names,
            dest=flag.path,
            action=_Switch,
            flag=flag,
            nargs=0,
            default=argparse.SUPPRESS,
            help=text,
        )
        return
    metavar = "{" + ",".join(flag.choices) + "}" if flag.choices else _METAVARS[flag.kind]
    parser.add_argument(
        *flag.names,
        dest=flag.path,
        action=_Store,
        flag=flag,
        metavar=metavar,
        nargs="+" if flag.is_list else None,
        default=argparse.SUPPRESS,
        help=text,
    )


_METAVARS = {int: "N", float: "X", str: "TEXT"}


def _kind(hint: object) -> tuple[type, tuple[str, ...], bool]:
    """The type of one value, what it may be (empty: anything), and whether there may be several."""
    if isinstance(hint, types.UnionType):
        hint = next(a for a in typing.get_args(hint) if a is not types.NoneType)
    if typing.get_origin(hint) is Literal:
        return str, typing.get_args(hint), False
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], (), True
    return typing.cast(type, hint), (), False


def _default(field: Field[Any]) -> object:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else None


def _is_text(typed: str) -> bool:
    """Whether no byte of it was beyond the locale: it travels to the engine as JSON."""
    try:
        typed.encode()
    except UnicodeEncodeError:
        return False
    return True


def _either(choices: Sequence[str]) -> str:
    return " or ".join([", ".join(choices[:-1]), choices[-1]] if len(choices) > 1 else choices)


def field_docs(config: type) -> dict[str, str]:
    """The docstring below each field, read from the source: Python keeps none at run time."""
    source = inspect.getsource(sys.modules[config.__module__])
    body = next(
        node.body
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == config.__name__
    )
    docs: dict[str, str] = {}
    for item, below in itertools.pairwise(body):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    docs[item.target.id] = " ".join(text.split())
    return docs

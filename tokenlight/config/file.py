# SPDX-License-Identifier: Apache-2.0
"""A YAML file of flags: the same names, the same checks, as on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenlight.base.errors import ConfigError
from tokenlight.config.flags import REFUSED, Flag, flags_of, nearest


def read_file(path: Path, *configs: type) -> dict[str, object]:
    """Read flags for these config classes.

    Args:
        path: a YAML mapping of flag names, without dashes in front, to values; `_` is as `-`.
        *configs: whose flags it may have.

    Returns:
        Path of a field -> value.

    Raises:
        ConfigError: no such file, no YAML, an unknown name, or a value that the flag refuses.
    """
    flags = {_key(flag): flag for config in configs for flag in flags_of(config)}
    values = {}
    for name, value in _mapping(path).items():
        key = str(name).replace("_", "-")
        if f"--{key}" in REFUSED:
            raise ConfigError(f"{path}: {name} is refused: {REFUSED[f'--{key}']}")
        if key not in flags:
            raise ConfigError(f"{path}: unknown name {name}{nearest(key, list(flags))}")
        if flags[key].path in values:
            raise ConfigError(f"{path}: {key} is there twice, with _ and with -; keep one")
        if value is not None:
            values[flags[key].path] = _value(path, flags[key], value)
    return values


def _mapping(path: Path) -> Mapping[object, object]:
    import yaml  # type: ignore[import-untyped]  # only who has such a file pays for it

    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"--config {path} is not YAML: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"--config {path} must be a mapping of flag names to values")
    return content


def _key(flag: Flag) -> str:
    return (flag.name or flag.positional or flag.path).lstrip("-").lower()


def _value(path: Path, flag: Flag, value: object) -> object:
    if flag.on is not None:
        if not isinstance(value, bool):
            raise ConfigError(f"{path}: {_key(flag)} must be true or false, got {value!r}")
        return flag.on if value else flag.off
    if flag.is_list:
        several: Sequence[object] = value if isinstance(value, list) else [value]
        return tuple(_parse(path, flag, v) for v in several)
    return _parse(path, flag, value)


def _parse(path: Path, flag: Flag, value: object) -> object:
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise ConfigError(f"{path}: {_key(flag)} must be one value, got {value!r}")
    try:
        return flag.parse(str(value))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from None

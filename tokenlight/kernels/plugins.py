# SPDX-License-Identifier: Apache-2.0
"""Kernels of other packages: what registers itself by an entry point of the group below.

An entry point names a function that takes nothing and calls `implement` of the ops it serves. One
that fails leaves nothing behind; `tokenlight kernels` names it with its reason.
"""

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tokenlight.base.log import get_log
from tokenlight.kernels.contract import Op
from tokenlight.kernels.ops import OPS

GROUP = "tokenlight.kernels"
_log = get_log("kernels")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One entry point, and what came of it."""

    name: str
    package: str
    """The distribution that declares it, with its version."""

    added: tuple[str, ...] = ()
    """Each "op/backend" that it registered."""

    error: str | None = None
    """Why it was skipped; None for a plugin that works."""

    def __str__(self) -> str:
        what = f"plugin {self.name} of {self.package}"
        if self.error is not None:
            return f"{what}: skipped: {self.error}"
        return f"{what}: {', '.join(self.added) or 'registers nothing'}"


PLUGINS: list[Plugin] = []


def load_plugins() -> None:
    """Load every plugin that is installed, by name; done once, when the room is imported."""
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        plugin = load_plugin(entry, OPS)
        PLUGINS.append(plugin)
        if plugin.error is not None:
            _log.warning("plugin_skipped name=%s error=%r", plugin.name, plugin.error)


def load_plugin(entry: EntryPoint, ops: dict[str, Op[..., Any]]) -> Plugin:
    """Run one entry point; what it registered is taken back if it fails."""
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
    before = {name: len(op.implementations) for name, op in ops.items()}
    try:
        entry.load()()
    except Exception as error:  # whatever another's code raises
        for name, op in ops.items():
            op.keep_first(before[name])
        return Plugin(name=entry.name, package=package, error=f"{type(error).__name__}: {error}")
    added = (
        f"{name}/{implementation.backend}"
        for name, op in ops.items()
        for implementation in op.implementations[before[name] :]
    )
    return Plugin(name=entry.name, package=package, added=tuple(added))

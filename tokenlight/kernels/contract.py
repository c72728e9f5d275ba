# SPDX-License-Identifier: Apache-2.0
"""What an op is: a contract (a function without a body) and implementations that claim to keep it.

Calling an op runs the implementation bound to the call's site: the device, the dtypes that the
contract is typed by, and the weight format. A site is bound once, by rank among the implementations
that can serve it, and remembered. Under `torch.fx` a call is one node, whose target is the op.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast, overload

import torch
from torch.fx import Proxy

from tokenlight.kernels.formats import Format
from tokenlight.kernels.machine import features
from tokenlight.kernels.native_call import Entry

P = ParamSpec("P")
R = TypeVar("R")

REFERENCE = 0
PORTABLE = 50
TUNED = 100


class Site(NamedTuple):
    """What an implementation is chosen by; `stored` is the dtype of weights or cache, if any."""

    device: str
    dtype: torch.dtype
    stored: torch.dtype
    format: Format | None


def dtype_name(dtype: torch.dtype) -> str:
    """`float32`, as files and reports spell it."""
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True, slots=True)
class Implementation(Generic[P, R]):
    """One way to run an op, and what it needs. None means that anything will do."""

    backend: str
    run: Callable[P, R]
    device: str
    needs: frozenset[str]
    dtypes: frozenset[torch.dtype] | None
    stored: frozenset[torch.dtype] | None
    formats: frozenset[Format] | None
    rank: int
    entry: Entry | None = None
    """How it joins a compiled CPU step; None: a step calls `run` from Python."""
    max_rows: int | None = None
    """The most rows of its first operand; with them it gives the bits of what serves more."""
    is_row_invariant: bool = True
    """Whether a row's bits depend on nothing but the row."""

    def why_not(self, site: Site, num_rows: int | None = None) -> str | None:
        """Why this implementation cannot serve calls of up to `num_rows`; None when it can.

        Args:
            site: of the calls.
            num_rows: the most rows that their first operand has; None: not known.
        """
        if self.device not in ("any", site.device):
            return f"runs on {self.device}"
        if missing := self.needs - features(site.device):
            return f"needs {', '.join(sorted(missing))}"
        if self.dtypes is not None and site.dtype not in self.dtypes:
            return f"does not take {site.dtype}"
        if self.stored is not None and site.stored not in self.stored:
            return f"does not read {site.stored}"
        if self.formats is not None and site.format not in self.formats:
            return f"does not read {site.format}"
        if self.max_rows is not None and (num_rows is None or num_rows > self.max_rows):
            return f"takes up to {self.max_rows} rows, in compiled steps"
        return None


class Op(Generic[P, R]):
    """A contract that can be called. Tensors are passed by position, options by keyword."""

    def __init__(
        self, contract: Callable[P, R], typed_by: tuple[str, str] | None, mutates: tuple[str, ...]
    ) -> None:
        parameters = list(inspect.signature(contract).parameters)
        first, second = typed_by or (parameters[0], parameters[0])
        self.name = contract.__name__
        self.contract = contract
        self.mutates = tuple(parameters.index(name) for name in mutates)
        self.implementations: list[Implementation[P, R]] = []
        self.takes_format = "format" in parameters
        self.is_typed_by_two = first != second
        self._first = parameters.index(first)
        self._second = parameters.index(second)
        self._bound: dict[Site | tuple[Any, ...], Callable[P, R]] = {}
        self._preferred: Mapping[Site, str] = {}
        self._shape: Callable[..., R] | None = None
        self.__doc__ = contract.__doc__
        self.__name__ = contract.__name__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            first: Any = args[self._first]
            second: Any = args[self._second]
        except IndexError:
            raise TypeError(f"{self.name} takes its tensors by position") from None
        key = (first.device.type, first.dtype, second.dtype, kwargs.get("format"))
        run = self._bound.get(key)
        if run is None:
            if isinstance(first, Proxy):  # traced: the call is one node
                return cast(R, first.tracer.create_proxy("call_function", self, args, kwargs))
            run = self._bound[key] = self.bind(self.site(*args, **kwargs)).run
        return run(*args, **kwargs)

    def infer(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """What a call gives, without its numbers: the arguments are tensors of device "meta"."""
        if self._shape is not None:
            return self._shape(*args, **kwargs)
        return next(i.run for i in self.implementations if i.rank == REFERENCE)(*args, **kwargs)

    def shape(self, rule: Callable[..., R]) -> Callable[..., R]:
        """Register what `infer` runs, for an op whose reference must read its numbers."""
        self._shape = rule
        return rule

    def site(self, *args: P.args, **kwargs: P.kwargs) -> Site:
        """What a call with these arguments is bound by."""
        first: Any = args[self._first]
        second: Any = args[self._second]
        weight_format: Any = kwargs.get("format")
        return Site(first.device.type, first.dtype, second.dtype, weight_format)

    def bind(self, site: Site, num_rows: int | None = None) -> Implementation[P, R]:
        """The implementation for `site`: the preferred, else the highest-ranked, that can serve it.

        Args:
            site: of the calls.
            num_rows: the most rows that their first operand has; None: not known.

        Raises:
            LookupError: none can; says why for each.
        """
        able = [i for i in self.implementations if i.why_not(site, num_rows) is None]
        if not able:
            reasons = "; ".join(f"{i.backend} {i.why_not(site)}" for i in self.implementations)
            raise LookupError(f"no implementation of {self.name} for {site}: {reasons}")
        preferred = self._preferred.get(site)
        return max(able, key=lambda i: (i.backend == preferred, i.rank))

    def withdraw(self, backend: str) -> None:
        """Serve nothing with this implementation from now on; what was compiled keeps it."""
        self.implementations = [i for i in self.implementations if i.backend != backend]
        self._bound.clear()

    def prefer(self, backends: Mapping[Site, str]) -> None:
        """Choose these before ranks do, in place of what was preferred so far."""
        self._preferred = dict(backends)
        self._bound.clear()

    def keep_first(self, count: int) -> None:
        """Forget the implementations that were registered after the first `count`."""
        del self.implementations[count:]
        self._bound.clear()

    def implement(  # noqa: PLR0913 - all that is said of an implementation
        self,
        backend: str,
        *,
        device: str,
        rank: int,
        needs: Collection[str] = (),
        dtypes: Collection[torch.dtype] | None = None,
        stored: Collection[torch.dtype] | None = None,
        formats: Collection[Format] | None = None,
        max_rows: int | None = None,
        is_row_invariant: bool = True,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Register the decorated function, which mypy holds to the contract's signature.

        Args:
            backend: its name in `explain` and in test ids; unique within the op.
            device: "cpu", "cuda", or "any".
            rank: REFERENCE < PORTABLE < TUNED; the highest that can serve a site does.
            needs: features of `machine.features` that must be there.
            dtypes: activation dtypes that it takes; None for all.
            stored: weight or cache dtypes that it reads; None for all.
            formats: weight formats, layout included, that it reads; None for all.
            max_rows: the most rows of the first operand. A step is compiled once more for so few;
                a token's bits must not depend on which of the two programs it is in.
            is_row_invariant: False for what adds in another order where rows are few, or many; it
                is withdrawn where deterministic inference is asked for.
        """

        def register(run: Callable[P, R]) -> Callable[P, R]:
            if any(i.backend == backend for i in self.implementations):
                raise ValueError(f"{self.name} has an implementation named {backend!r} already")
            self.implementations.append(
                Implementation(
                    backend=backend,
                    run=run,
                    device=device,
                    needs=frozenset(needs),
                    dtypes=None if dtypes is None else frozenset(dtypes),
                    stored=None if stored is None else frozenset(stored),
                    formats=None if formats is None else frozenset(formats),
                    rank=rank,
                    max_rows=max_rows,
                    is_row_invariant=is_row_invariant,
                )
            )
            self._bound.clear()
            return run

        return register

    def enter(self, backend: str) -> Callable[[Entry], Entry]:
        """Register the decorated function as the entry of that implementation."""

        def register(entry: Entry) -> Entry:
            index = next(n for n, i in enumerate(self.implementations) if i.backend == backend)
            self.implementations[index] = replace(self.implementations[index], entry=entry)
            return entry

        return register


@overload
def op(contract: Callable[P, R], /) -> Op[P, R]: ...


@overload
def op(
    *, typed_by: tuple[str, str] | None = None, mutates: tuple[str, ...] = ()
) -> Callable[[Callable[P, R]], Op[P, R]]: ...


def op(
    contract: Callable[P, R] | None = None,
    /,
    *,
    typed_by: tuple[str, str] | None = None,
    mutates: tuple[str, ...] = (),
) -> Op[P, R] | Callable[[Callable[P, R]], Op[P, R]]:
    """Make an op of a contract.

    Args:
        contract: a documented function without a body.
        typed_by: the parameters whose dtypes choose the implementation: activations, and weights or
            cache.
            Default: the first parameter.
        mutates: the parameters that are written in place.
    """
    if contract is not None:
        return Op(contract, typed_by, mutates)
    return lambda function: Op(function, typed_by, mutates)

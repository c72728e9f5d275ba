# SPDX-License-Identifier: Apache-2.0
"""What a program is made for, and which implementation serves a call there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tokenlight.kernels.comm import COLLECTIVES, Communicator, carried_by, gather_shares
from tokenlight.kernels.contract import Implementation, Op, Site
from tokenlight.spmd.rows import Limits, rows_of


class Target(NamedTuple):
    """Where a program runs, with how many rows at most, and how its rank reaches the others.

    A call is told by its op, its operands as inferred, and its options.
    """

    device: torch.device
    limits: Limits
    communicator: Communicator | None = None

    def find(
        self, op: Op[..., Any], args: Sequence[Any], options: Mapping[str, Any]
    ) -> Implementation[..., Any] | None:
        """What would serve the call; None: nothing."""
        try:
            return self.bind(op, args, options)
        except LookupError:
            return None

    def bind(
        self, op: Op[..., Any], args: Sequence[Any], options: Mapping[str, Any]
    ) -> Implementation[..., Any]:
        """What serves the call, however many of the rows up to the limits it has.

        Raises:
            LookupError: nothing does; says why.
        """
        if op not in COLLECTIVES:
            return op.bind(self._site(op, args, options), self._num_rows(args))
        carried = self._carried(op, args[0])
        if reason := carried.why_not(self._site(op, args, options), self._num_rows(args)):
            raise LookupError(f"{op.name} by {carried.backend} {reason}")
        return carried

    def _num_rows(self, args: Sequence[Any]) -> int:
        return rows_of(args[0]).most(self.limits)

    def _site(self, op: Op[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> Site:
        return op.site(*args, **options)._replace(device=self.device.type)

    def _carried(self, op: Op[..., Any], operand: Tensor) -> Implementation[..., Any]:
        assert self.communicator is not None
        carried = carried_by(self.communicator, op)
        if op is gather_shares:
            carried = replace(carried, max_rows=self.max_gathered_rows(operand))
        return carried

    def max_gathered_rows(self, operand: Tensor) -> int:
        """Up to how many rows of what shall be summed its shares are better gathered."""
        assert self.communicator is not None
        return self.communicator.max_gathered_bytes // (operand.nbytes // operand.shape[0])

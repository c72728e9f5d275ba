# SPDX-License-Identifier: Apache-2.0
"""What serves a call that a tuned kernel is not made for."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tokenlight.kernels.contract import TUNED, Op

P = ParamSpec("P")
R = TypeVar("R")


def portable(op: Op[P, R], *args: P.args, **kwargs: P.kwargs) -> Callable[P, R]:
    """The best implementation below the tuned ones for a call with these arguments."""
    site = op.site(*args, **kwargs)
    able = [i for i in op.implementations if i.rank < TUNED and i.why_not(site) is None]
    return max(able, key=lambda i: i.rank).run

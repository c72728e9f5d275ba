# SPDX-License-Identifier: Apache-2.0
"""POST /reset_prefix_cache: what was computed so far serves no later prompt; for admins."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.services import services


class Reset(msgspec.Struct, frozen=True, kw_only=True):
    reset: Literal[True] = True


async def reset_prefix_cache(request: Request) -> Response:
    services(request).engine.reset_prefix_cache()
    return json_response(Reset())


ENDPOINTS = [
    Endpoint(
        path="/reset_prefix_cache",
        method="POST",
        handler=reset_prefix_cache,
        summary="Forget what was computed.",
        response=Reset,
        is_admin=True,
    )
]

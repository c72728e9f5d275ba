# SPDX-License-Identifier: Apache-2.0
"""What the server's tests share: servers that end at once."""

import asyncio
from collections.abc import Iterator

import pytest
import uvicorn.server


class _Brisk:
    """asyncio for uvicorn, which sleeps a tenth of a second when it ends, whatever is open."""

    def __getattr__(self, name: str) -> object:
        return getattr(asyncio, name)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s / 50)


@pytest.fixture(scope="session", autouse=True)
def brisk_uvicorn() -> Iterator[None]:
    """Nearly every test here ends a server of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn.server, "asyncio", _Brisk())
        yield

# SPDX-License-Identifier: Apache-2.0
"""Connections by which ranks that a launcher started hear of each other, on whichever hosts.

A collective notices that its other end is gone, but neither that it hangs, nor anything while
nobody calls one. Between children and their parent pipes do this.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack

from tokenlight.base.errors import EngineDead

_KEY_BYTES = 16
_RANK_BYTES = 4
_MEET_S = 60.0
_SAY_S = 10.0
_ANY_PORT = 9


class Door:
    """The leading rank's: where the others come in. They know the address and the key by order."""

    def __init__(self, met_at: str) -> None:
        """Listen where others reach this host.

        Args:
            met_at: by what name the launcher let all ranks find it.
        """
        family, host = _own_address(met_at)
        # This host's own name may lead to its loopback here, and nowhere else.
        is_named = _is_loopback(host) and not (met_at == "localhost" or _is_loopback(met_at))
        self._listener = socket.create_server(("" if is_named else host, 0), family=family)
        port = self._listener.getsockname()[1]
        self.address: tuple[str, int] = (met_at if is_named else host, port)
        self.key = secrets.token_hex(_KEY_BYTES)

    def let_in(self, num_others: int) -> dict[int, socket.socket]:
        """Every other rank's connection, once all have come; nobody comes in any more.

        Raises:
            EngineDead: one did not come in time.
        """
        came: dict[int, socket.socket] = {}
        with self._listener, ExitStack() as kept:
            self._listener.settimeout(_MEET_S)
            while len(came) < num_others:
                try:
                    guest, _ = self._listener.accept()
                except TimeoutError:
                    missing = sorted({*range(1, num_others + 1)} - {*came})
                    raise EngineDead(
                        f"ranks {missing} did not come to {self.address[0]}:{self.address[1]} "
                        f"within {_MEET_S:g} s; can their hosts reach this one's ports?"
                    ) from None
                if (rank := self._rank_of(guest)) is None:
                    guest.close()
                else:
                    came[rank] = kept.enter_context(guest)
            kept.pop_all()
        return came

    def _rank_of(self, guest: socket.socket) -> int | None:
        """None: a stranger's."""
        said, wanted = b"", 2 * _KEY_BYTES + _RANK_BYTES
        guest.settimeout(_SAY_S)
        try:
            while len(said) < wanted and (more := guest.recv(wanted - len(said))):
                said += more
        except OSError:
            return None
        guest.settimeout(None)
        key, rank = said[: 2 * _KEY_BYTES], said[2 * _KEY_BYTES :]
        if len(rank) < _RANK_BYTES or not secrets.compare_digest(key, self.key.encode()):
            return None
        return int.from_bytes(rank, "little")


def come_in(address: tuple[str, int], key: str, rank: int) -> socket.socket:
    """Another rank's connection to the leading one.

    Raises:
        EngineDead: it cannot be reached.
    """
    try:
        made = socket.create_connection(address, timeout=_MEET_S)
    except OSError as error:
        raise EngineDead(
            f"rank 0 does not answer at {address[0]}:{address[1]} ({error.strerror or error}); "
            f"can this host reach its ports, and is MASTER_ADDR its name here?"
        ) from None
    made.settimeout(None)
    made.sendall(key.encode() + rank.to_bytes(_RANK_BYTES, "little"))
    return made


def _is_loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1"


def _own_address(met_at: str) -> tuple[socket.AddressFamily, str]:
    """The name may be that of a service before this host, so the route says which address it is."""
    family, kind, _, _, place = socket.getaddrinfo(met_at, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(place)  # sends nothing
        return family, str(probe.getsockname()[0])

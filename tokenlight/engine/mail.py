# SPDX-License-Identifier: Apache-2.0
"""The engine's end of the wire: one inbox, one outbox, and a wait that costs no CPU."""

import signal
import socket
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import zmq

from tokenlight import wire
from tokenlight.base.log import event, get_log

_log = get_log("engine")

_LINGER_MS = 1000  # last words may take this long to leave when the process ends


class Mailbox:
    """Sockets of the loop's thread. No queue is ever full: the client bounds what may wait."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], *, inbox: str, outbox: str) -> None:
        self._inbox = context.socket(zmq.PULL)
        self._inbox.setsockopt(zmq.RCVHWM, 0)
        self._inbox.connect(inbox)
        self._outbox = connect_outbox(context, outbox)
        # A signal writes a byte here, so that a wait ends although Python retries interrupted
        # calls.
        self._wake, self._signalled = socket.socketpair()
        self._wake.setblocking(False)
        self._signalled.setblocking(False)
        signal.set_wakeup_fd(self._signalled.fileno())
        self._poller = zmq.Poller()
        self._poller.register(self._inbox, zmq.POLLIN)
        self._poller.register(self._wake, zmq.POLLIN)

    def wait(self) -> None:
        """Sleep until there is mail, a signal came, or `wake` was called."""
        if self._wake.fileno() in dict(self._poller.poll()):
            self._wake.recv(4096)

    def wake(self) -> None:
        """End a wait; may be called on any thread."""
        with suppress(OSError):  # full: it wakes as it is; closed: nobody waits
            self._signalled.send(b"\0")

    def read(self) -> Iterator[wire.ToEngine]:
        """All mail that is there; never waits."""
        while True:
            try:
                data = self._inbox.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                yield wire.decode_to_engine(data)
            except msgspec.DecodeError as fault:  # of a client of another version
                _log.error(event("bad_message", num_bytes=len(data), fault=fault))

    def send(self, message: wire.FromEngine) -> None:
        self._outbox.send(wire.encode(message))

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        self._inbox.close(linger=0)
        self._outbox.close(linger=_LINGER_MS)
        self._wake.close()
        self._signalled.close()


def connect_outbox(context: zmq.Context[zmq.Socket[bytes]], address: str) -> zmq.Socket[bytes]:
    """A sending socket; each thread needs its own."""
    outbox = context.socket(zmq.PUSH)
    outbox.setsockopt(zmq.SNDHWM, 0)
    outbox.connect(address)
    return outbox

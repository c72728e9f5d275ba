# SPDX-License-Identifier: Apache-2.0
"""How messages reach the other ranks: by a pipe to each on a host, by broadcast across hosts.

A pipe is memory that both sides share, with the flow control and the notice of the other side's end
that a ring of our own would have to add. It is a rank's standard input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO, Protocol

import numpy as np
import torch
import torch.distributed as dist

from tokenlight.runner.ranks.message import Words

_LENGTH = np.dtype("<i8")


class Channel(Protocol):
    """The leading rank's end."""

    def send(self, words: Words) -> None:
        """To every other rank, in order."""


class PipeChannel:
    """The leading rank's ends."""

    def __init__(self, pipes: Sequence[BinaryIO]) -> None:
        self._pipes = pipes

    def send(self, words: Words) -> None:
        """To every rank; returns once it is in the pipes.

        Raises:
            BrokenPipeError: a rank is gone.
        """
        data = np.array([len(words)], _LENGTH).tobytes() + words.tobytes()
        for pipe in self._pipes:
            pipe.write(data)
            pipe.flush()


def read_pipe(pipe: BinaryIO) -> Iterator[Words]:
    """What the leading rank sends, until it closes the pipe."""
    while head := pipe.read(_LENGTH.itemsize):
        (count,) = np.frombuffer(head, _LENGTH).tolist()
        data = bytearray(4 * count)
        if pipe.readinto(data) < len(data):  # type: ignore[attr-defined]
            return
        yield np.frombuffer(data, np.int32)


class GroupChannel:
    """The leading rank's side of a broadcast over the process group of all ranks."""

    def send(self, words: Words) -> None:
        """To every rank: first the length, then the words."""
        dist.broadcast(torch.tensor([len(words)]), src=0)
        dist.broadcast(torch.from_numpy(words.copy()), src=0)

    def close(self) -> None:
        """Tell the others that nothing more comes."""
        dist.broadcast(torch.tensor([-1]), src=0)


def read_group() -> Iterator[Words]:
    """What the leading rank broadcasts, until it says that it ends."""
    while True:
        length = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(length, src=0)
        if length.item() < 0:
            return
        words = torch.empty(int(length), dtype=torch.int32)
        dist.broadcast(words, src=0)
        yield words.numpy()

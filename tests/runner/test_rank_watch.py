# SPDX-License-Identifier: Apache-2.0
"""Ranks hear of each other: who ends or is silent is lost, and a stranger is nobody."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tokenlight.base.errors import EngineDead
from tokenlight.runner.ranks import meeting, watch
from tokenlight.runner.ranks.meeting import Door, come_in
from tokenlight.runner.ranks.watch import READY, Watch

WAIT_S = 30.0


class Losses:
    """Who was lost, as soon as somebody is."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str]] = []
        self._is_told = threading.Event()

    def __call__(self, rank: int, why: str) -> None:
        self.told.append((rank, why))
        self._is_told.set()

    def wait(self) -> list[tuple[int, str]]:
        assert self._is_told.wait(WAIT_S), "nobody was missed"
        return self.told


@pytest.fixture
def lost() -> Losses:
    return Losses()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_rank_that_ends_is_lost_and_one_that_was_told_to_is_not(pair, lost: Losses):
    ours, theirs = pair
    watched = Watch({3: ours.fileno()}, lost, beats=False)
    theirs.shutdown(socket.SHUT_WR)
    assert lost.wait() == [(3, "ended")]
    watched.join(WAIT_S)
    one, other = socket.socketpair()
    with one, other:
        watched = Watch({3: one.fileno()}, lost, beats=False)
        watched.await_end()
        other.shutdown(socket.SHUT_WR)
        watched.join(WAIT_S)
    assert len(lost.told) == 1


def test_silence_is_borne_for_longer_while_a_rank_loads(
    pair, lost: Losses, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(watch, "_LOST_AFTER_S", 0.0)
    monkeypatch.setattr(watch, "BEAT_PERIOD_S", 0.02)
    ours, theirs = pair
    watched = Watch({1: ours.fileno()}, lost, beats=False)
    for _ in range(5):
        theirs.send(watch.BEAT)
    assert not lost.told
    theirs.send(READY)
    watched.wait_ready()
    assert lost.wait()[0] == (1, "said nothing for 0 s")
    watched.await_end()
    theirs.shutdown(socket.SHUT_WR)
    watched.join(WAIT_S)


def test_a_machine_that_was_stopped_loses_nobody(
    pair, lost: Losses, monkeypatch: pytest.MonkeyPatch
):
    """A minute passes in one look, in which nobody could say anything; half a second does count."""
    stopped_s = [0.0]
    looks_s: list[float] = []
    lost_s: list[float] = []

    class Selector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None):
            told = super().select(timeout)
            looks_s.append(time.monotonic())
            stopped_s[0] = 60.0 if len(looks_s) > 1 else 0.0
            return told

    def lose(rank: int, why: str) -> None:
        lost_s.append(time.monotonic())
        lost(rank, why)

    monkeypatch.setattr(watch, "DefaultSelector", Selector)
    monkeypatch.setattr(watch, "now_s", lambda: time.monotonic() + stopped_s[0])
    monkeypatch.setattr(watch, "BEAT_PERIOD_S", 0.02)
    monkeypatch.setattr(watch, "_LOST_AFTER_S", 0.5)
    ours, theirs = pair
    theirs.send(READY)
    watched = Watch({1: ours.fileno()}, lose, beats=False)
    assert lost.wait()[0] == (1, "said nothing for 0.5 s")
    assert lost_s[0] - looks_s[1] > 0.2
    watched.await_end()
    theirs.shutdown(socket.SHUT_WR)
    watched.join(WAIT_S)


def test_ranks_that_hear_of_each_other_lose_nobody(
    pair, lost: Losses, monkeypatch: pytest.MonkeyPatch
):
    """Each ends when the other has: whoever comes first."""
    monkeypatch.setattr(watch, "BEAT_PERIOD_S", 0.02)
    ours, theirs = pair
    leading = Watch({1: ours.fileno()}, lost, beats=True)
    following = Watch({0: theirs.fileno()}, lost, beats=True)
    following.say(READY)
    leading.wait_ready()
    leading.say(READY)
    following.wait_ready()
    for each, end in ((leading, theirs), (following, ours)):
        each.await_end()
        end.shutdown(socket.SHUT_WR)
        each.join(WAIT_S)
    assert not lost.told


def test_only_who_knows_the_key_comes_in():
    door = Door("127.0.0.1")
    # Connections wait in the listener's queue until they are let in.
    with (
        socket.create_connection(door.address) as stranger,
        socket.create_connection(door.address) as cut,
    ):
        stranger.sendall(b"x" * 36)
        cut.sendall(b"x")
        cut.shutdown(socket.SHUT_WR)
        guests = [come_in(door.address, door.key, rank) for rank in (2, 1)]
        came = door.let_in(2)
        assert sorted(came) == [1, 2]
        guests[0].sendall(b"two")
        assert came[2].recv(3) == b"two"
        for each in (*guests, *came.values()):
            each.close()
        assert stranger.recv(1) == b""


def test_a_name_that_leads_to_loopback_here_is_given_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
):
    """As Debian's /etc/hosts has a host's own name; elsewhere it leads to this host."""
    real = socket.getaddrinfo

    def here(host: str, *args: object, **kwargs: object) -> object:
        return real("127.0.1.1" if host == "this-host" else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", here)
    door = Door("this-host")
    assert door.address[0] == "this-host"
    # So it is reached by each address that it has.
    with come_in(("127.0.0.2", door.address[1]), door.key, 1):
        for each in door.let_in(1).values():
            each.close()


def test_a_leader_that_is_not_there_is_told_of():
    door = Door("127.0.0.1")
    door.let_in(0)
    with pytest.raises(EngineDead, match=r"rank 0 does not answer at 127.0.0.1:"):
        come_in(door.address, door.key, 1)


def test_who_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(meeting, "_MEET_S", 0.1)
    door = Door("127.0.0.1")
    with (
        come_in(door.address, door.key, 1),
        pytest.raises(EngineDead, match=r"ranks \[2, 3\] did not come"),
    ):
        door.let_in(3)

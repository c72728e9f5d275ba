# SPDX-License-Identifier: Apache-2.0
"""An engine process without a model: it speaks the wire, at the pace it is told.

A request's tokens are those of its prompt, over and over; one for each running request every
1 / TOKENS_PER_S seconds, all of a step in one message, as the real loop sends them.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import msgspec
import zmq

from tokenlight import wire
from tokenlight.engine.mail import Mailbox
from tokenlight.engine.process import Orders

TOKENS_PER_S = 70
CONTEXT_TOKENS = 262_144
_VOCAB_SIZE = 49_152
_STATUS = wire.Status(
    num_steps=0,
    step_running_s=0.0,
    num_running=0,
    num_waiting=0,
    num_free_blocks=1,
    num_blocks=1,
    num_cached_blocks=0,
    num_prompt_tokens=0,
    num_cached_tokens=0,
    num_sampled_tokens=0,
    num_preemptions=0,
)


class Speaking:
    """A request on its way."""

    def __init__(self, message: wire.Generate) -> None:
        self.id = message.request_id
        self._token_ids = list(wire.unpack_token_ids(message.prompt_token_ids))
        self._most = message.max_new_tokens
        self._num_said = 0

    def step(self) -> wire.Delta:
        token_id = self._token_ids[self._num_said % len(self._token_ids)]
        self._num_said += 1
        return wire.Delta(
            request_id=self.id,
            token_ids=[token_id],
            num_cached_tokens=0,
            finish_reason="length" if self._num_said == self._most else None,
            num_sampled_tokens=self._num_said,
        )


def main() -> int:
    """Say Ready, speak until told to stop."""
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=Orders)
    is_stopping = False

    def stop(*_: object) -> None:
        nonlocal is_stopping
        is_stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    speaking: dict[str, Speaking] = {}
    with zmq.Context() as context:
        mail = Mailbox(context, inbox=orders.inbox, outbox=orders.outbox)
        mail.send(wire.Ready(facts=_FACTS))
        beat_s = 0.0
        while not is_stopping and os.getppid() == orders.parent_pid:
            start_s = time.monotonic()
            if start_s - beat_s >= 1:
                mail.send(_STATUS)
                beat_s = start_s
            for message in mail.read():
                if isinstance(message, wire.Generate):
                    speaking[message.request_id] = Speaking(message)
                elif isinstance(message, wire.Abort):
                    speaking.pop(message.request_id, None)
            if speaking:
                deltas = [one.step() for one in speaking.values()]
                mail.send(wire.Deltas(deltas=deltas))
                for delta in deltas:
                    if delta.finish_reason is not None:
                        del speaking[delta.request_id]
            pause_s = 1 / TOKENS_PER_S if speaking else 0.001
            time.sleep(max(0.0, start_s + pause_s - time.monotonic()))
        mail.close()
    return 0


_FACTS = wire.ModelFacts(
    max_model_tokens=CONTEXT_TOKENS,
    vocab_size=_VOCAB_SIZE,
    block_tokens=16,
    num_blocks=CONTEXT_TOKENS // 16,
    kv_bytes=0,
    weights_bytes=0,
    load_s=0.0,
)


if __name__ == "__main__":
    sys.exit(main())

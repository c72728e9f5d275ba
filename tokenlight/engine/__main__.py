# SPDX-License-Identifier: Apache-2.0
"""`python -m tokenlight.engine`: the engine process. Orders are one JSON line on stdin."""

import gc
import os
import signal
import sys
from types import FrameType

import msgspec
import zmq

from tokenlight import wire
from tokenlight.base import log
from tokenlight.base.errors import TokenLightError
from tokenlight.engine.mail import Mailbox
from tokenlight.engine.process import Orders

_log = log.get_log("engine")


def main() -> int:
    """Load, say Ready, loop until told to stop. The exit code is 0 only after a SIGTERM."""
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=Orders)
    log.configure(orders.log_level)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent decides
    with zmq.Context() as context:
        mail = Mailbox(context, inbox=orders.inbox, outbox=orders.outbox)
        try:
            return _serve(orders, context, mail)
        except TokenLightError as fault:
            mail.send(wire.Failed(code=fault.code, message=fault.message))
            return 1
        finally:
            mail.close()


def _serve(orders: Orders, context: zmq.Context[zmq.Socket[bytes]], mail: Mailbox) -> int:
    # torch is imported here: whoever imports this module to read it, and a wrong order, do not pay
    # for it.
    from tokenlight.control import Scheduler
    from tokenlight.engine.heartbeat import Board, Heartbeat
    from tokenlight.engine.loop import Loop
    from tokenlight.runner import ModelRunner, scheduler_config

    runner = ModelRunner.load(orders.config)
    scheduler = Scheduler(scheduler_config(runner.config, hash_key=os.urandom(16)))
    board = Board(stats=scheduler.stats(), full_step_s=runner.full_step_s)
    loop = Loop(scheduler, runner, mail, board)

    def stop(signum: int, frame: FrameType | None) -> None:
        loop.is_stopping = True

    signal.signal(signal.SIGTERM, stop)
    heartbeat = Heartbeat(context, outbox=orders.outbox, board=board, parent_pid=orders.parent_pid)
    gc.collect()
    gc.freeze()  # what loading left lives as long as the process: no need to look at it again
    facts = msgspec.structs.replace(runner.facts, max_model_tokens=scheduler.max_request_tokens)
    mail.send(wire.Ready(facts=facts))
    heartbeat.start()
    _log.info(log.event("engine_ready", **msgspec.structs.asdict(facts)))
    try:
        loop.run()
    finally:
        heartbeat.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""`python -m tokenlight.engine`: the engine process. Orders are one JSON line on stdin."""

import gc
import os
import signal
import sys
import traceback
from types import FrameType

import msgspec
import zmq

from tokenlight import wire
from tokenlight.base import log
from tokenlight.base.errors import TokenLightError
from tokenlight.base.leave import leave
from tokenlight.engine.heartbeat import Board, Heartbeat
from tokenlight.engine.mail import Mailbox
from tokenlight.engine.process import Orders

_log = log.get_log("engine")


def main() -> int:
    """Load, say Ready, loop until told to stop. The exit code is 0 only after a SIGTERM."""
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=Orders)
    log.configure(orders.log_level)
    if orders.config.parallel.num_ranks == 1:
        return _run(orders)
    try:
        code = _run(orders)
    except BaseException:
        traceback.print_exc()
        code = 1
    leave(code)


def _run(orders: Orders) -> int:
    # Ctrl-C reaches the whole group; what it means is the parent's to decide.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with zmq.Context() as context:
        mail = Mailbox(context, inbox=orders.inbox, outbox=orders.outbox)
        heartbeat = Heartbeat(context, orders)
        heartbeat.start()
        try:
            _serve(orders, mail, heartbeat)
        except TokenLightError as fault:
            mail.send(wire.Failed(code=fault.code, message=fault.message))
            return 1
        finally:
            heartbeat.stop()
            mail.close()
    return 0


def _serve(orders: Orders, mail: Mailbox, heartbeat: Heartbeat) -> None:
    # torch is imported here, once the heartbeat watches: a parent may well leave meanwhile.
    from tokenlight.engine.loop import Loop
    from tokenlight.engine.planner import make_planner
    from tokenlight.runner import ModelRunner, scheduler_config

    runner = ModelRunner.load(orders.config)
    settings = scheduler_config(runner.config, hash_key=os.urandom(16))
    scheduler = make_planner(settings, runner.config.num_groups, orders.config.record_control)
    board = Board(stats=scheduler.stats(), full_step_s=runner.full_step_s)
    loop = Loop(scheduler, runner, mail, board, overlap=runner.config.overlap)

    def stop(signum: int, frame: FrameType | None) -> None:
        loop.is_stopping = True

    signal.signal(signal.SIGTERM, stop)
    gc.collect()
    gc.freeze()  # what loading left lives as long as the process: no need to look at it again
    facts = msgspec.structs.replace(runner.facts, max_model_tokens=scheduler.max_request_tokens)
    mail.send(wire.Ready(facts=facts))
    heartbeat.begin(board)
    _log.info(log.event("engine_ready", **msgspec.structs.asdict(facts)))
    try:
        loop.run()
    finally:
        runner.close()


if __name__ == "__main__":
    sys.exit(main())

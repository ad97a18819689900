"""Interrupts a process at random moments from another thread, as a terminal or a supervisor does:
``python -m tests.system.interrupts.random_signals vulkan 2000 0``."""

from __future__ import annotations

import os
import queue
import random
import signal
import sys
import threading
import time

import numpy as np

from tests.support.contexts import settled_bytes
from tests.system.interrupts.world import World

#: Maximum seconds between signals.
PAUSE = 0.004


def dropped(given: sys.UnraisableHookArgs) -> None:
    """Python drops an exception raised in a destructor or the collector and reports it: the signal
    is sent again."""
    if given.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(given)


def main(device: str, wanted: int, seed: int) -> None:
    sys.unraisablehook = dropped
    world = World(device)
    calls = [world.calls[name] for name in (
        "write", "write_large", "dispatch", "read", "result", "compute", "create", "destroy",
        "callback", "to_numpy", "fence")]
    numbers = random.Random(seed)
    for call in calls:
        call()
    world.check_new(1)
    before = settled_bytes(world.context)
    wanted_now = queue.SimpleQueue()
    pauses = random.Random(seed + 1)

    seen = threading.Event()

    def send() -> None:
        while wanted_now.get():
            time.sleep(pauses.uniform(0, PAUSE))
            seen.clear()
            os.kill(os.getpid(), signal.SIGINT)
            # See ``dropped``.
            while not seen.wait(1):
                os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()
    slowest = 0.0
    for number in range(wanted):
        start = time.monotonic()
        try:
            wanted_now.put(True)
            while True:
                numbers.choice(calls)()
        except KeyboardInterrupt:
            slowest = max(slowest, time.monotonic() - start)
            seen.set()
        if number % 100 == 0:
            world.check(number)
            world.check_new(number)
    wanted_now.put(False)
    world.check(3)
    end = time.monotonic() + 10
    while settled_bytes(world.context) > before and time.monotonic() < end:
        time.sleep(1)  # memory for later calls is freed when none comes
    after = settled_bytes(world.context)
    assert after <= before, f"{after - before} bytes more than before"
    data = np.arange(4, dtype=np.float32)
    assert world.context.compute(world.graph, {"x": data})["y"].tolist() == [1, 2, 3, 4]
    print(f"{wanted} interrupts on {device}, {slowest:.2f} s at most until one was seen")
    world.context.destroy()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

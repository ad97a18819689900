"""`python -m tests.stress --seed S --seconds N`: every call from 8 threads on 4 contexts.

Two contexts are on a Vulkan device (lavapipe where there is no GPU), two on the CPU device; half
of them run one operator on the CPU. Random calls, destructions and injected faults interleave; what
is read is compared with a sequential model. Ends with the numbers of calls and faults by kind, and
fails on a wrong value, an error without a cause, a hang, a leak, or a kind that never happened.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter

from tests.lifetimes.cycles import resident_bytes
from tests.stress.calls import Caller
from tests.stress.world import PATIENCE, Failure, World, open_world
from webnn_vk import DOMException, MLContext, MLTensor
from webnn_vk.vulkan.instance import validation_total

THREADS = 8
CONTEXTS = 4
#: Calls by how often they are made.
CALLS = {
    "create_tensor": 10, "write_tensor": 14, "read_tensor": 14, "read_tensor_into": 7,
    "to_numpy": 3, "destroy_tensor": 3, "drop_tensor": 3, "build": 3, "dispatch": 30,
    "compute": 2, "destroy_graph": 1, "drop_graph": 1, "check_pending": 8, "fence": 3, "misuse": 3,
}
#: What happens to contexts and devices, by how often, among as many calls as above times 20.
EVENTS = {"fail_allocation": 20, "fail_submit": 20, "lose": 2, "destroy_context": 4,
          "drop_context": 2}
#: Growth of the process after the first quarter that counts as a leak, in bytes.
GROWTH = 48 << 20


class Stress:
    def __init__(self, seed: int, seconds: float) -> None:
        self.seed = seed
        self.end = time.monotonic() + seconds
        self.faults: Counter[str] = Counter()
        self.grown = 0
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._left = threading.Condition(self._lock)
        self.worlds = [self._open(slot) for slot in range(CONTEXTS)]
        self.callers = [Caller(seed * 1000 + i, use_asyncio=i % 4 == 0) for i in range(THREADS)]
        self.beats = [time.monotonic()] * THREADS

    @staticmethod
    def _open(slot: int) -> World:
        return open_world(vulkan=slot < 2, force_cpu=bool(slot % 2))

    # -- threads -------------------------------------------------------------------------------
    def run(self, index: int) -> None:
        caller = self.callers[index]
        # Each kind once, so that none is left out, then by chance.
        first = [*CALLS, *CALLS, *EVENTS]
        caller.random.shuffle(first)
        try:
            while not self.failures and (first or time.monotonic() < self.end):
                self.beats[index] = time.monotonic()
                if first:
                    kind = first.pop()
                elif caller.random.random() < 1 / 400:
                    kind = caller.random.choices([*EVENTS], [*EVENTS.values()])[0]
                else:
                    kind = caller.random.choices([*CALLS], [*CALLS.values()])[0]
                self.step(caller, kind)
        except BaseException:
            self.failures.append(f"{kind}: {traceback.format_exc()}")

    def step(self, caller: Caller, kind: str) -> None:
        slot = caller.random.randrange(CONTEXTS)
        if kind in ("fail_allocation", "fail_submit", "lose"):
            slot %= 2
        if kind == "drop_context":
            self.replace(slot, self.worlds[slot], drop=True)
            caller.counts[kind] += 1
            return
        with self._lock:
            world = self.worlds[slot]
            world.visitors += 1
        try:
            if kind in EVENTS:
                self.happen(caller, world, kind)
            else:
                try:
                    getattr(caller, kind)(world)
                except DOMException as error:
                    # What the calls don't look at themselves: creating, building, fences.
                    world.excuse(error)
            caller.counts[kind] += 1
        finally:
            with self._lock:
                world.visitors -= 1
                self._left.notify_all()
        if world.over:
            self.replace(slot, world)

    def happen(self, caller: Caller, world: World, kind: str) -> None:
        chance = caller.random
        if kind == "fail_allocation":
            world.driver.fail_allocation(chance.randint(1, 6), times=chance.randint(1, 4))
        elif kind == "fail_submit":
            world.driver.fail_submit(chance.randint(1, 6), times=chance.randint(1, 3))
        elif kind == "lose":
            world.driver.lose_at(chance.randint(1, 30))
        elif kind == "destroy_context":
            world.ended = True
            world.context.destroy()

    def replace(self, slot: int, world: World, *, drop: bool = False) -> None:
        """A new context in the place of one; the old one is looked through, once."""
        fresh = self._open(slot)
        with self._lock:
            first = self.worlds[slot] is world
            if first:
                self.worlds[slot] = fresh
        if first:
            self.retire(world, drop=drop)
        else:
            fresh.context.destroy()

    def retire(self, world: World, *, drop: bool = False) -> None:
        """The end of a world that no call finds any more."""
        with self._left:
            if not self._left.wait_for(lambda: not world.visitors, PATIENCE):
                raise Failure(f"{world.context!r}: calls on it don't return")
        while world.pending:
            world.pending.pop(0)()  # no name of ours keeps what it holds
        world.check_memory()
        world.check_end(drop=drop and not world.over)
        if world.driver is not None:
            with self._lock:
                self.faults.update(world.driver.injected)

    # -- the whole -----------------------------------------------------------------------------
    def main(self) -> int:
        threads = [threading.Thread(target=self.run, args=(i,), daemon=True)
                   for i in range(THREADS)]
        for thread in threads:
            thread.start()
        quarter = time.monotonic() + (self.end - time.monotonic()) / 4
        resident = None
        while alive := [thread for thread in threads if thread.is_alive()]:
            alive[0].join(0.5)
            if resident is None and time.monotonic() > quarter:
                resident = resident_bytes()
            beats = [b for b, t in zip(self.beats, threads, strict=True) if t.is_alive()]
            if beats and time.monotonic() - min(beats) > 3 * PATIENCE:
                faulthandler.dump_traceback(all_threads=True)
                print(f"HANG with seed {self.seed}", file=sys.stderr)
                os._exit(3)
        if not self.failures:
            try:
                while self.worlds:
                    self.retire(self.worlds.pop())
                self.check_rest(resident)
            except Exception:
                self.failures.append(traceback.format_exc())
        return self.report()

    def check_rest(self, resident: int | None) -> None:
        gc.collect()
        objects = [o for o in gc.get_objects() if isinstance(o, (MLContext, MLTensor))]
        if objects:
            raise Failure(f"{len(objects)} objects are left: {objects[:5]}")
        ours = [t.name for t in threading.enumerate() if t.name.startswith("webnn_vk")]
        if ours:
            raise Failure(f"threads are left: {ours}")
        said = validation_total()
        if said:
            raise Failure(f"the validation layer said something {said} times")
        self.grown = resident_bytes() - (resident or resident_bytes())
        if self.grown > GROWTH:
            raise Failure(f"the process grew by {self.grown / 2**20:.1f} MB")

    def report(self) -> int:
        counts: Counter[str] = sum((caller.counts for caller in self.callers), Counter())
        print(f"seed {self.seed}: {sum(counts.values())} calls, {sum(self.faults.values())} faults")
        for title, found, kinds in (
            ("calls", counts, [*CALLS, "create_constant_tensor", *EVENTS]),
            ("faults", self.faults, ["allocation", "submit", "lost"]),
        ):
            print(f"{title}: " + ", ".join(f"{kind} {found[kind]}" for kind in kinds))
            missing = [kind for kind in kinds if not found[kind]]
            if missing and not self.failures:
                self.failures.append(f"no {', '.join(missing)} among the {title}")
        if self.failures:
            print(f"FAILED with seed {self.seed}:", *self.failures, sep="\n")
            return 1
        print(f"every value right, nothing left; grown by {self.grown / 2**20:.1f} MB")
        return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    faulthandler.enable()
    return Stress(options.seed, options.seconds).main()


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.system.stress --seed S --seconds N`: every call from 8 threads on 4 contexts.
With `--steps N`: N calls from one thread, the same for one seed, without signals.

Two contexts are on a Vulkan device (lavapipe where there is no GPU): one is made on a GPUDevice,
one shares with a GPUDevice that opened the device once more. Two are on the CPU device; half of all
run one operator on the CPU. Random calls, destructions and injected faults interleave; what is read
is compared with a sequential model. Ends with the numbers of calls and faults by kind, and fails on
a wrong value, an error without a cause, a hang, a leak, or a kind that never happened.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter

from tests.system.lifetimes.cycles import resident_bytes
from tests.system.stress.exchange import ExchangeCalls, gpu_device, weights, wgpu, wgpu_device
from tests.system.stress.kinds import all_kinds
from tests.system.stress.leftovers import describe
from tests.system.stress.model import Failure, Leak
from tests.system.stress.signals import Signals
from tests.system.stress.world import PATIENCE, World, open_world
from webnn_vk import MLContext, MLTensor
from webnn_vk.driver.vulkan.instance import instance, reported
from webnn_vk.gpu import GPUBuffer, GPUDevice
from webnn_vk.runtime.reclaim import TRIES

THREADS = 8
CONTEXTS = 4
#: Calls and their relative frequencies.
CALLS = {
    "create_tensor": 10, "write_tensor": 14, "read_tensor": 14, "read_tensor_into": 7,
    "to_numpy": 3, "destroy_tensor": 3, "drop_tensor": 3, "create_constant_tensor": 1,
    "import_constant_tensor": 1, "destroy_constant_tensor": 1, "build": 3, "dispatch": 30,
    "compute": 2, "compute_async": 2, "destroy_graph": 1, "drop_graph": 1, "check_pending": 8,
    "fence": 3, "misuse": 3, "from_dlpack": 2, "numpy_from_dlpack": 3,
}
if wgpu is not None:
    CALLS["export_to_wgpu"] = 2
#: Only on worlds with a GPUDevice.
SHARING = {
    "create_exportable_tensor": 5, "export_to_gpu": 8, "import_external_buffer": 3,
    "use_exported": 3, "create_buffer": 2, "create_buffer_with_data": 2, "write_buffer": 6,
    "read_buffer": 8, "submit": 6, "copy_buffer_to_buffer": 4, "destroy_buffer": 7,
    "drop_buffer": 3, "on_submitted_work_done": 2, "open_device": 3, "export_fd": 2,
}
#: Events of contexts and devices, by frequency among 20 times as many calls as above.
EVENTS = {"fail_allocation": 20, "fail_submit": 20, "lose": 3, "destroy_context": 4,
          "drop_context": 2, "destroy_device": 4}
ON_VULKAN = {*SHARING, "fail_allocation", "fail_submit", "lose", "destroy_device"}
ON_CPU: set[str] = set()
#: The faults that events inject.
FAULTS = {"fail_allocation": "allocation", "fail_submit": "submit", "lose": "lost"}
#: Kinds that have their own files are added.
KINDS = all_kinds()
for _kind in KINDS.values():
    (EVENTS if _kind.event else CALLS)[_kind.name] = _kind.share
    if _kind.on != "any":
        (ON_VULKAN if _kind.on == "vulkan" else ON_CPU).add(_kind.name)
#: How often ``run_steps`` tries kinds that didn't happen.
ROUNDS = 50
#: Growth of the process after the first quarter that counts as a leak, in bytes.
GROWTH = 48 << 20


class Stress:
    def __init__(self, seed: int, seconds: float, steps: int | None = None) -> None:
        self.seed = seed
        #: How many calls one thread makes, in place of `THREADS` threads for some seconds.
        self.steps = steps
        self.shared = [gpu_device(), *([wgpu_device()] if wgpu is not None else [])]
        weights()
        with contextlib.suppress(ImportError):
            import onnxruntime  # noqa: F401  it keeps files of its own open
        self.descriptors = open_descriptors()
        self.end = time.monotonic() + seconds
        self.refused: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        #: Memory of the process at each eighth of the time, and at the end, in bytes.
        self.resident: list[int] = []
        self.grown = 0
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._left = threading.Condition(self._lock)
        self.worlds = [self._open(slot) for slot in range(CONTEXTS)]
        self.callers = [ExchangeCalls(seed * 1000 + i, use_asyncio=i % 4 == 0)
                        for i in range(THREADS if steps is None else 1)]
        self.beats = [time.monotonic()] * len(self.callers)
        #: Threads in which each kind has happened once.
        self.settled: set[int] = set()
        #: When each kind had happened in all threads.
        self.begin: float | None = None
        self.seconds = seconds

    @staticmethod
    def _open(slot: int) -> World:
        return open_world(vulkan=slot < 2, same=slot == 0, force_cpu=bool(slot % 2))

    # -- threads -------------------------------------------------------------------------------
    def run(self, index: int) -> None:
        caller = self.callers[index]
        # Each kind once, so that none is left out, then at random.
        calls = {**CALLS, **SHARING}
        first = [*calls, *calls, *EVENTS]
        caller.random.shuffle(first)
        try:
            while not self.failures and (self.begin is None or time.monotonic() < self.end):
                self.beats[index] = time.monotonic()
                if not first:
                    self.settled.add(index)
                if first:
                    kind = first.pop()
                elif caller.random.random() < 1 / 400:
                    kind = caller.random.choices([*EVENTS], [*EVENTS.values()])[0]
                else:
                    kind = caller.random.choices([*calls], [*calls.values()])[0]
                self.step(caller, kind)
        except BaseException as error:
            self.fail(kind, error)

    def run_steps(self, steps: int) -> None:
        """Calls of one thread, each kind among them; as many more as it takes until each kind of
        call and fault has happened, since a fault may have kept it from that; it fails if that
        takes more than ``ROUNDS`` times 20 calls."""
        caller = self.callers[0]
        calls = {**CALLS, **SHARING}
        first = [*calls, *EVENTS] * 2
        caller.random.shuffle(first)
        kind = "the beginning"
        try:
            for kind in (*first, *caller.random.choices([*calls], [*calls.values()], k=steps)):
                self.step(caller, kind)
            for _ in range(ROUNDS):
                if not (missing := self.missing(caller.counts)):
                    return
                if "open_device" in missing:
                    missing.insert(0, "destroy_device")  # in whose place another one is opened
                others = caller.random.choices([*calls], [*calls.values()], k=20)
                for kind in (*missing, *others):
                    self.step(caller, kind)
            raise AssertionError(f"never happened: {', '.join(missing)}")
        except BaseException as error:
            self.fail(kind, error)

    def missing(self, counts: Counter[str]) -> list[str]:
        """Kinds of calls and events that are still to happen."""
        faults = Counter(self.faults)
        for world in self.worlds:
            for driver in world.drivers:
                faults.update(driver.injected)
        found = [kind for kind in (*CALLS, *SHARING, *EVENTS) if not counts[kind]]
        return found + [event for event, fault in FAULTS.items() if not faults[fault]]

    def fail(self, what: str, error: BaseException) -> None:
        self.failures.append(f"{what}: {traceback.format_exc()}")  # the others stop now
        if isinstance(error, Leak):
            self.failures.extend(describe(driver) for driver in error.drivers)

    def step(self, caller: ExchangeCalls, kind: str) -> None:
        slot = caller.random.randrange(CONTEXTS)
        if kind in ON_VULKAN:
            slot %= 2
        elif kind in ON_CPU:
            slot = 2 + slot % 2
        if kind == "drop_context":
            self.replace(slot, self.worlds[slot], drop=True)
            caller.counts[kind] += 1
            return
        if kind in KINDS and KINDS[kind].apart:
            caller.counts[kind] += KINDS[kind].run(caller, self.worlds[slot]) is not False
            return
        with self._lock:
            world = self.worlds[slot]
            world.visitors += 1
        try:
            if kind in KINDS:
                made = KINDS[kind].run(caller, world)
            elif kind in EVENTS:
                made = self.happen(caller, world, kind)
            else:
                made = getattr(caller, kind)(world)
            caller.counts[kind] += made is not False
        finally:
            with self._lock:
                world.visitors -= 1
                self._left.notify_all()
        if world.dead:
            self.replace(slot, world)

    def happen(self, caller: ExchangeCalls, world: World, kind: str) -> bool:
        chance = caller.random
        driver = chance.choice(world.drivers) if world.drivers else None
        if kind == "fail_allocation":
            driver.fail_allocation(chance.randint(1, 6), times=chance.randint(1, 4 * TRIES))
        elif kind == "fail_submit":
            driver.fail_submit(chance.randint(1, 6), times=chance.randint(1, 3))
        elif kind == "lose":
            driver.lose_at(chance.randint(1, 30))
        elif kind == "destroy_context":
            world.ended = True
            world.context.destroy()
        elif kind == "destroy_device":
            with world.lock:
                gpu = world.gpu
                first, gpu.ended = not gpu.ended, True
            if first:
                gpu.destroy()
            return first
        return True

    def replace(self, slot: int, world: World, *, drop: bool = False) -> None:
        """Replaces a context by a new one; the old one is checked, once."""
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
        """Ends a world that no call uses any more."""
        with self._left:
            if not self._left.wait_for(lambda: not world.visitors, PATIENCE):
                raise Failure(f"{world.context!r}: calls on it don't return")
        while world.pending:
            world.pending.pop(0)()  # no variable keeps its objects alive
        world.check_values()
        world.check_returned()
        world.check_memory()
        world.check_end(drop=drop and not world.dead)
        with self._lock:
            self.refused.update(world.refused)
            for driver in world.drivers:
                self.faults.update(driver.injected)

    # -- the whole -----------------------------------------------------------------------------
    def main(self) -> int:
        if self.steps is None:
            self.run_threads()
        else:
            self.run_steps(self.steps)
        if not self.failures:
            try:
                while self.worlds:
                    self.retire(self.worlds.pop())
                self.check_rest()
            except Exception as error:
                self.fail("at the end", error)
        return self.report()

    def run_threads(self) -> None:
        threads = [threading.Thread(target=self.run, args=(i,), daemon=True)
                   for i in range(THREADS)]
        for thread in threads:
            thread.start()
        signals = Signals(self.seed)
        while alive := [thread for thread in threads if thread.is_alive()]:
            faulthandler.dump_traceback_later(6 * PATIENCE, exit=True)
            try:
                self.visit(signals)
            except Exception as error:
                self.fail("signals", error)
            alive[0].join(0.2)
            if self.begin is None and len(self.settled) == THREADS:
                # One-time memory of each kind is allocated: from here on the process must not grow.
                now = time.monotonic()
                self.end = max(self.end, now + self.seconds / 2)
                self.begin = now
            if self.begin is not None and time.monotonic() > (
                    self.begin + (len(self.resident) + 1) / 8 * (self.end - self.begin)):
                self.resident.append(resident_bytes())
            beats = [b for b, t in zip(self.beats, threads, strict=True) if t.is_alive()]
            if beats and time.monotonic() - min(beats) > 3 * PATIENCE:
                faulthandler.dump_traceback(all_threads=True)
                print(f"HANG with seed {self.seed}", file=sys.stderr)
                os._exit(3)
        faulthandler.cancel_dump_traceback_later()
        self.callers[0].counts.update(signals.counts)

    def visit(self, signals: Signals) -> None:
        """Calls of the main thread, interrupted by signals."""
        with self._lock:
            world = signals.random.choice(self.worlds)
            world.visitors += 1
        try:
            signals.visit(world)
        finally:
            with self._lock:
                world.visitors -= 1
                self._left.notify_all()

    def check_rest(self) -> None:
        spare = self.shared[0]
        spare.destroy()
        spare.device._state.timeline._closed.wait(PATIENCE)
        os.unlink(weights())
        gc.collect()
        kinds = MLContext, MLTensor, GPUBuffer, GPUDevice
        objects = [o for o in gc.get_objects()
                   if isinstance(o, kinds) and o is not spare.device]
        if objects:
            raise Failure(f"{len(objects)} objects are left: {objects[:5]}")
        # Workers without a job stay for a while.
        ours = [t.name for t in threading.enumerate()
                if t.name.startswith("webnn_vk") and t.name != "webnn_vk-worker"]
        if ours:
            raise Failure(f"threads are left: {ours}")
        grown = open_descriptors() - self.descriptors
        if grown > 0:
            raise Failure(f"{grown} more file descriptors are open: {described()}")
        said = len(reported)
        if said:
            raise Failure(f"the validation layer said something {said} times")
        if self.steps is not None:
            return  # too few for the level of memory
        self.resident.append(resident_bytes())
        self.grown = self.resident[-1] - self.resident[min(1, len(self.resident) - 1)]
        if self.grown > GROWTH:
            raise Failure(f"the process grew by {self.grown / 2**20:.1f} MB")

    def report(self) -> int:
        counts: Counter[str] = sum((caller.counts for caller in self.callers), Counter())
        layer = instance()
        print(f"seed {self.seed}: {sum(counts.values())} calls,",
              f"{sum(self.faults.values())} faults, {sum(self.refused.values())} refusals")
        print("validation layer", layer.layer_version if layer.validating else "OFF",
              "" if wgpu is not None else "; wgpu is not installed")
        print("resident MB:", *[size >> 20 for size in self.resident])
        for title, found, kinds in (
            ("calls", counts, [*CALLS, *SHARING, *EVENTS,
                               *(["interrupt", "handler"] if self.steps is None else [])]),
            ("faults", self.faults, [*FAULTS.values()]),
            ("refusals", self.refused, sorted(self.refused)),
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


def described() -> list[str]:
    """Targets of the open file descriptors."""
    folder = "/proc/self/fd"
    paths = (f"{folder}/{name}" for name in os.listdir(folder))
    return sorted(os.readlink(path) for path in paths if os.path.islink(path))


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.stress", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--steps", type=int, help="make this number of calls, from one thread")
    options = parser.parse_args()
    faulthandler.enable()
    return Stress(options.seed, options.seconds, options.steps).main()


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.fuzz --seconds N [--calls N] [--seed S] [--device cpu|vulkan|both]`

Makes calls of every kind, valid ones mixed with odd ones, until the time is over or the given
number were made. Only TypeError and DOMExceptions may come out, with the method's name; nothing
takes longer than 10 seconds (`--patience`), and memory stays level. With `--calls` alone the calls
are the same for one seed, and memory isn't measured. On a failure it prints the fewest calls that
show it: `--replay DEVICE/EPISODE/CALL,CALL…` with the same seed makes them again.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import logging
import math
import os
import random
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.fuzz.episode import CALLS, PATIENCE, Defect, Episode
from tests.fuzz.uses import valid_uses
from tests.support.contexts import open_context
from tests.system.lifetimes.cycles import resident_bytes

#: Episodes on one context.
EPISODES = 100
#: Growth of the process after the first quarter that counts as a leak, in bytes.
GROWTH = 64 << 20
#: Share of the episodes that run on Vulkan, where there are two devices to choose from.
ON_VULKAN = 0.15
#: The first episodes use the devices in turn: one-time memory of drivers is allocated then.
WARM = 20
#: Attempts to reduce a failure.
TRIES = 120


class Fuzz:
    def __init__(self, seed: int, devices: Sequence[str], each: int, patience: float) -> None:
        self.seed, self.devices, self.patience = seed, devices, patience
        self.uses = valid_uses(seed, each)
        self.calls = self.episodes = 0
        self.said: Counter[str] = Counter()
        self.by_device: Counter[str] = Counter()
        self.slowest: tuple[float, str] = (0.0, "")
        self.resident: list[int] = []
        #: With ``every``, by kind.
        self.failures: dict[str, str] = {}
        self._contexts: dict[str, tuple[Any, int]] = {}
        self._lost = open_context("cpu")
        self._lost.destroy()
        self._beat = (time.monotonic(), "the beginning")
        threading.Thread(target=self._watch, daemon=True).start()

    def beat(self, what: str) -> None:
        now = time.monotonic()
        self.slowest = max(self.slowest, (now - self._beat[0], self._beat[1]))
        self._beat = (now, what)

    def _watch(self) -> None:
        while True:
            time.sleep(0.5)
            since, what = self._beat
            if time.monotonic() - since > self.patience:
                faulthandler.dump_traceback(all_threads=True)
                print(f"HANG with seed {self.seed}: {what}", flush=True)
                os._exit(3)

    def context(self, device: str) -> Any:
        found, count = self._contexts.get(device, (None, 0))
        if found is None or count >= EPISODES:
            if found is not None:
                found.destroy()
            found, count = open_context(device), 0
        self._contexts[device] = found, count + 1
        return found

    def run(self, seconds: float, most: float, *, every: bool = False) -> int:
        """Until the first failure; with ``every`` all of them, the first of each kind in one line.
        Either limit may be infinite."""
        begin = time.monotonic()
        chance = random.Random(self.seed)
        while time.monotonic() < begin + seconds and self.calls < most:
            device = self.devices[-1 if chance.random() < ON_VULKAN else 0]
            if self.episodes < WARM:
                device = self.devices[self.episodes % len(self.devices)]
            place = f"{device}/{self.episodes}"
            self.beat(f"{place}: a context")
            episode = self.episode(place, self.context(device))
            try:
                episode.run(range(CALLS), lambda what, place=place: self.beat(f"{place}/{what}"))
                episode.end()
            except Exception as error:
                if not every:
                    self.beat(f"{place}: making the failure smaller")
                    self._explain(place, episode, error)
                    return 1
                known = self.failures.setdefault(_kind(error), f"{place}/{episode.now}: {error}")
                if known.startswith(f"{place}/"):
                    print(ascii(f"{_kind(error)}: {known}")[:600], flush=True)
            self.calls += len(episode.log)
            self.by_device[device] += len(episode.log)
            self.said.update(episode.said)
            self.episodes += 1
            passed = max((time.monotonic() - begin) / seconds, self.calls / most)
            if seconds < math.inf and passed > (len(self.resident) + 1) / 8:
                gc.collect()
                self.resident.append(resident_bytes())
        return self.report(time.monotonic() - begin)

    def episode(self, place: str, context: Any) -> Episode:
        return Episode(context, self._lost, self.uses, f"{self.seed}/{place}", self.patience)

    def report(self, seconds: float) -> int:
        for context, _ in self._contexts.values():
            context.destroy()
        gc.collect()
        grown = 0
        if self.resident:
            self.resident.append(resident_bytes())
            grown = self.resident[-1] - self.resident[min(1, len(self.resident) - 1)]
        print(f"seed {self.seed}: {self.calls} calls in {self.episodes} episodes,",
              f"{self.calls / seconds:.0f} per second;",
              ", ".join(f"{device} {count}" for device, count in self.by_device.items()))
        print("outcomes:", ", ".join(f"{kind} {count}" for kind, count in self.said.most_common()))
        print(f"slowest: {self.slowest[0]:.2f} s, {self.slowest[1]}")
        print("resident MB:", *[size >> 20 for size in self.resident])
        if grown > GROWTH:
            print(f"FAILED: the process grew by {grown / 2**20:.1f} MB")
            return 1
        if self.failures:
            print(f"FAILED: {len(self.failures)} kinds")
            return 1
        print(f"every call answered as documented; grown by {grown / 2**20:.1f} MB")
        return 0

    # -- failures --------------------------------------------------------------------------------
    def attempt(self, place: str, numbers: Sequence[int]) -> tuple[Episode, Exception | None]:
        """Makes the calls again, on a new context."""
        with open_context(place.split("/")[0]) as context:
            episode = self.episode(place, context)
            try:
                episode.run(numbers, lambda what: self.beat(f"{place}/{what} again"))
            except Exception as error:
                return episode, error
        return episode, None

    def _explain(self, place: str, episode: Episode, error: Exception) -> None:
        print(f"FAILED with seed {self.seed} in {place}, call {episode.now}: {_kind(error)}")
        traceback.print_exception(error)
        numbers = list(range(int(episode.now.split(":")[0]) + 1))
        self.minimal(place, numbers, _kind(error))

    def minimal(self, place: str, numbers: list[int], kind: str) -> None:
        """Removes calls that the failure doesn't need, half of them at a time and then fewer."""
        best, error = self.attempt(place, numbers)
        if error is None or _kind(error) != kind:
            print(f"not seen again on a fresh context ({error!r}); the calls were:")
            print("\n".join(episode_log(best)))
            return
        tries, part = 0, len(numbers) // 2
        while part and tries < TRIES:
            for start in range(0, len(numbers), part):
                fewer = numbers[:start] + numbers[start + part :]
                tries += 1
                if numbers[-1] not in fewer:
                    continue
                tried, error = self.attempt(place, fewer)
                if error is not None and _kind(error) == kind:
                    numbers, best = fewer, tried
                    break
            else:
                part //= 2
        print(f"the fewest calls that show it ({tries} tries):")
        print("\n".join(episode_log(best)))
        print(f"again: python -m tests.fuzz --seed {self.seed} --replay "
              f"{place}/{','.join(map(str, numbers))}")


def episode_log(episode: Episode) -> list[str]:
    return [f"  {line}" for line in episode.log]


def _kind(error: Exception) -> str:
    return error.kind if isinstance(error, Defect) else f"{type(error).__name__} {error}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="20 without --calls, else no limit")
    parser.add_argument("--calls", type=int)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--device", choices=("cpu", "vulkan", "both"), default="both")
    parser.add_argument("--uses", type=int, default=4, help="valid uses drawn of each operator")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds of a call")
    parser.add_argument("--all", action="store_true", help="go on after failures")
    parser.add_argument("--replay", help="DEVICE/EPISODE/CALL,CALL…")
    options = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    logging.disable()
    devices = ("cpu", "vulkan") if options.device == "both" else (options.device,)
    fuzz = Fuzz(options.seed, devices, options.uses, options.patience)
    if options.replay:
        place, _, numbers = options.replay.rpartition("/")
        episode, error = fuzz.attempt(place, [int(n) for n in numbers.split(",")])
        print("\n".join(episode_log(episode)))
        if error is not None:
            traceback.print_exception(error)
        return int(error is not None)
    most = options.calls or math.inf
    seconds = options.seconds or (math.inf if options.calls else 20)
    return fuzz.run(seconds, most, every=options.all)


if __name__ == "__main__":
    sys.exit(main())

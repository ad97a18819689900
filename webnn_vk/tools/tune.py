"""``webnn-vk tune``: measures the kernels of a model, for later builds."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from webnn_vk.api.inspection import tuner_of
from webnn_vk.runtime.tuning.tuner import Outcome, Plan
from webnn_vk.support.errors import sanitize
from webnn_vk.support.formatting import duration

from . import ToolError
from .devices import open_context
from .loaded_model import Options, open_as_given
from .models import SAVED
from .output import emit, facts, table, working


def tune(options: Options, candidates: int, rounds: int, again: bool) -> None:
    """Measure the schedules of each distinct problem of the model and print the results."""
    if options.model.startswith(SAVED):
        raise ToolError("a saved graph is compiled already: tune the model that it was built from")
    with working("tuning") as bar, open_context(options.device, tune=True) as context:
        tuner = tuner_of(context)
        if tuner is None:
            raise ToolError(f"{context.device_info} has no kernels to tune: --device vulkan takes "
                            "a Vulkan device")
        tuner.plan = Plan(candidates, rounds, again)

        def progress(number: int, total: int, operators: str) -> None:
            if number == 0:
                bar.begin("tuning", total)
            else:
                bar.step()

        tuner.progress = progress
        start, busy = time.perf_counter(), time.process_time()
        model = open_as_given(options, context)
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
        device, title, folder = str(context.device_info), model.title, tuner.store.folder
        outcomes = tuner.outcomes
    if options.json:
        emit({
            "model": title, "device": device, "seconds": seconds, "cpu_seconds": busy,
            "folder": None if folder is None else str(folder),
            "problems": [_data(outcome) for outcome in outcomes],
        })
        return
    facts([("Device", device), ("Model", title),
           ("Kept", folder or "nothing: the cache is off")])
    _show(outcomes, seconds)


def _data(outcome: Outcome) -> dict[str, Any]:
    measured = [
        {**asdict(m), "schedule": str(m.schedule)} for m in outcome.measured
    ]
    return {
        **asdict(outcome), "chosen": str(outcome.chosen), "usual": str(outcome.usual),
        "measured": measured,
    }


def _show(outcomes: list[Outcome], seconds: float) -> None:
    if not outcomes:
        print("\nNothing to tune: each of its kernels has one schedule")
        return
    print()
    table(("kernels", "operators", "usual", "tuned", "faster", "schedule"), [
        (o.kernels, sanitize(o.operators),
         "" if o.usual_seconds is None else duration(o.usual_seconds),
         "" if o.seconds is None else duration(o.seconds),
         "" if not o.seconds or not o.usual_seconds else f"{o.usual_seconds / o.seconds:.2f}×",
         o.left or (str(o.chosen) + " (kept)" * o.kept))
        for o in outcomes
    ], right=("kernels", "usual", "tuned", "faster"))
    rejected = sum(bool(m.rejected) for o in outcomes for m in o.measured)
    changed = sum(o.chosen != o.usual for o in outcomes)
    by = {o.timed_by for o in outcomes if o.timed_by}
    clocks = {"timestamps": "the device's timestamps",
              "submits": "seconds from submit to end: the device has no timestamps"}
    print(f"\n{changed} of {len(outcomes)} problems have another schedule now, {rejected} "
          f"schedules were rejected; {duration(seconds)}, by "
          + ", ".join(clocks[name] for name in sorted(by)))

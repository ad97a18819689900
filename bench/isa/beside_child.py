"""The process that compares our kernels with captured ones on one chip:
`python -m bench.isa.beside_child CHIP RESULT.json FOLDER`. Started by `bench.isa.beside`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from webnn_vk.codegen.isa import listing
from webnn_vk.codegen.store import ShaderStore, ShaderUnavailable
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.resources import PipelineRequest
from webnn_vk.driver.vulkan.compile_only.device import ChipUnavailable, CompileOnlyDevice
from webnn_vk.driver.vulkan.errors import VulkanError

from . import bound, graphs, workloads
from .beside import OURS
from .capture import Capture, Captured, Dispatched, Kept, Layout, read_module
from .execution import Inputs, Undetermined, executed

#: Bytes of push constants of every pipeline; RADV's limit is higher.
_PUSH_BYTES = 256
T = TypeVar("T")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chip")
    parser.add_argument("result", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    try:
        device = CompileOnlyDevice(options.chip)
        rows = [
            row for name in workloads.WORKLOADS if any(options.folder.glob(f"*/{name}"))
            for row in _judged(device, bound.CHIPS[options.chip], options.folder, name)
        ]
    except (ChipUnavailable, ShaderUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    options.result.write_text(json.dumps(rows), encoding="utf-8")
    return 0


def _judged(
    device: CompileOnlyDevice, chip: bound.Chip, folder: Path, name: str
) -> Iterable[dict[str, Any]]:
    """A row for us, and for each peer that has the workload."""
    peers = sorted(path.parent.name for path in folder.glob(f"*/{name}") if path.is_dir())
    for who in (OURS, *peers):
        row: dict[str, Any] = {
            "workload": name, "who": who, "bound": None, "error": None, "dispatches": []
        }
        try:
            if who == OURS:
                kept = ours(device.profile, name)
            else:
                kept = Kept.read(folder / who / name)
            done = dispatches(device, chip, kept)
        except (VulkanError, ValueError, OSError) as error:
            yield row | {"error": str(error)}
            continue
        judgement = bound.bound(done, chip)
        yield row | {"bound": asdict(judgement), "dispatches": [_plain(d) for d in done]}


def _plain(dispatch: bound.Dispatch) -> dict[str, Any]:
    kernel = dispatch.kernel
    return {
        "groups": dispatch.groups, "local_size": dispatch.local_size,
        "multiply_adds": round(kernel.multiply_adds * dispatch.invocations),
        "fma_share": kernel.share, "one": asdict(kernel.one),
    }


def ours(profile: DeviceProfile, name: str) -> Kept:
    """Our program for a workload, as a capturing driver would record it."""
    graph = graphs.described(workloads.WORKLOADS[name])
    program, _ = compile_program(graph, Target(profile))
    steps = workloads.steps(program)
    kinds = list(dict.fromkeys((step.spec, step.constants) for step in steps))
    modules = ShaderStore().get([spec for spec, _ in kinds])
    pipelines = {n: Captured("main", constants) for n, (_, constants) in enumerate(kinds)}
    number = {kind: n for n, kind in enumerate(kinds)}
    capture = Capture(pipelines, tuple(
        Dispatched(number[step.spec, step.constants], step.groups, step.push) for step in steps
    ))
    return Kept(capture, dict(enumerate(modules)))


def dispatches(
    device: CompileOnlyDevice, chip: bound.Chip, kept: Kept
) -> list[bound.Dispatch]:
    """The dispatches of a capture with what their kernels cost. `Undetermined` names the pipelines
    whose loops can't be counted."""
    capture = kept.capture
    layouts = {
        n: read_module(code, capture.pipelines[n].constants) for n, code in kept.codes.items()
    }
    listings = dict(zip(kept.codes, _parallel(
        lambda n: _listing(device, n, capture.pipelines[n], kept.codes[n], layouts[n]),
        kept.codes,
    ), strict=True))
    found: dict[Dispatched, bound.Kernel] = {}
    unknown: dict[int, str] = {}
    for dispatched in dict.fromkeys(capture.dispatches):
        n = dispatched.pipeline
        pipeline = capture.pipelines[n]
        inputs = Inputs(
            dispatched.groups, layouts[n].local_size, dispatched.push, dict(dispatched.uniforms)
        )
        try:
            loop = executed(kept.codes[n], pipeline.constants, pipeline.entry, inputs)
            found[dispatched] = bound.judged(listings[n], loop, chip)
        except Undetermined as error:
            unknown[n] = f"pipeline {n} ({pipeline.entry}): {error}"
    if unknown:
        raise Undetermined("; ".join(unknown.values()))
    return [
        bound.Dispatch(found[d], d.groups, layouts[d.pipeline].local_size)
        for d in capture.dispatches
    ]


def _listing(
    device: CompileOnlyDevice, number: int, pipeline: Captured, code: bytes, layout: Layout
) -> Sequence[listing.Block]:
    request = PipelineRequest(
        code, 0, _PUSH_BYTES, pipeline.constants, f"pipeline {number}", entry_point=pipeline.entry
    )
    return listing.parse(device.compile(request, sets=layout.sets).assembly)


def _parallel(function: Callable[[Any], T], values: Iterable[Any]) -> list[T]:
    # The driver's compiler runs without the interpreter's lock.
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, values))


if __name__ == "__main__":
    sys.exit(main())

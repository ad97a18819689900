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
from webnn_vk.compiler.ir import Graph
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.driver.resources import PipelineRequest
from webnn_vk.driver.vulkan.compile_only.device import ChipUnavailable, CompileOnlyDevice
from webnn_vk.driver.vulkan.errors import VulkanError

from . import bound, graphs, workloads
from .beside import OURS
from .capture import CaptureError, read_log, read_module
from .kernels import Kernel

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
    graph = graphs.described(workloads.WORKLOADS[name])
    layers, elements = workloads.layers(graph), workloads.elements(graph)
    peers = sorted(path.parent.name for path in folder.glob(f"*/{name}") if path.is_dir())
    for who in (OURS, *peers):
        row: dict[str, Any] = {
            "workload": name, "who": who, "bound": None, "error": None, "dispatches": []
        }
        try:
            if who == OURS:
                done = _ours(device, chip, graph, layers)
            else:
                done = _captured(device, chip, folder / who / name)
                row["dispatches"] = [_plain(d) for d in done]
                known = bound.attributed(layers, done)
                if known is None:
                    count = sum(d.kernel.multiply_adds > 0 for d in done)
                    raise CaptureError(
                        f"which of its {len(done)} dispatches, of which {count} multiply, do "
                        f"the {len(layers)} products can't be told"
                    )
                done = known
        except (VulkanError, CaptureError, OSError, ValueError) as error:
            yield row | {"error": str(error)}
            continue
        judgement = bound.bound(done, chip, elements)
        yield row | {"bound": asdict(judgement), "dispatches": [_plain(d) for d in done]}


def _plain(dispatch: bound.Dispatch) -> dict[str, Any]:
    kernel = dispatch.kernel
    return {
        "groups": dispatch.groups, "local_size": dispatch.local_size,
        "multiply_adds": dispatch.multiply_adds, "fma_share": kernel.share,
        "looped": kernel.looped, "per_fma": asdict(kernel.per_fma), "once": asdict(kernel.once),
    }


def _ours(
    device: CompileOnlyDevice, chip: bound.Chip, graph: Graph, layers: Sequence[bound.Layer]
) -> list[bound.Dispatch]:
    program, _ = compile_program(graph, Target(device.profile))
    steps = workloads.steps(program)
    kinds = list(dict.fromkeys((step.spec, step.constants) for step in steps))
    modules = ShaderStore().get([spec for spec, _ in kinds])
    requests = [
        Kernel(*kind).request(module) for kind, module in zip(kinds, modules, strict=True)
    ]
    found = _parallel(lambda request: _listing(device, request, chip), requests)
    kernels = dict(zip(kinds, found, strict=True))
    return [
        bound.Dispatch(
            kernels[step.spec, step.constants], step.groups, _local_size(step), count
        )
        for step, count in zip(steps, workloads.multiply_adds(steps, layers), strict=True)
    ]


def _local_size(step: Any) -> tuple[int, int, int]:
    values = dict(step.constants)
    x, y, z = (int.from_bytes(values[i], "little") for i in range(3))
    return x, y, z


def _captured(device: CompileOnlyDevice, chip: bound.Chip, folder: Path) -> list[bound.Dispatch]:
    capture = read_log((folder / "log.txt").read_text(encoding="utf-8"))
    if not capture.dispatches:
        raise CaptureError("nothing was dispatched on Vulkan")
    numbers = list(dict.fromkeys(number for number, _ in capture.dispatches))

    def one(number: int) -> tuple[bound.Kernel, tuple[int, int, int]]:
        pipeline = capture.pipelines[number]
        code = (folder / f"pipe_{number}.spv").read_bytes()
        layout = read_module(code, pipeline.constants)
        request = PipelineRequest(
            code, 0, _PUSH_BYTES, pipeline.constants, f"pipeline {number}",
            entry_point=pipeline.entry,
        )
        return _listing(device, request, chip, layout.sets), layout.local_size

    found = dict(zip(numbers, _parallel(one, numbers), strict=True))
    return [
        bound.Dispatch(found[number][0], groups, found[number][1])
        for number, groups in capture.dispatches
    ]


def _listing(
    device: CompileOnlyDevice, request: PipelineRequest, chip: bound.Chip, sets: Any = None
) -> bound.Kernel:
    compiled = device.compile(request, sets=sets)
    return bound.judged(listing.parse(compiled.assembly), chip)


def _parallel(function: Callable[[Any], T], values: Iterable[Any]) -> list[T]:
    # The driver's compiler runs without the interpreter's lock.
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, values))


if __name__ == "__main__":
    sys.exit(main())

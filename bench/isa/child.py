"""The process that compiles for one chip: `python -m bench.isa.child CHIP RESULT.json PART …`.

Started by `bench.isa.judge`, with the driver and the chip in the environment.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from webnn_vk.codegen.isa import FAMILIES, listing
from webnn_vk.codegen.store import ShaderStore, ShaderUnavailable
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.vulkan.compile_only.device import ChipUnavailable, CompileOnlyDevice
from webnn_vk.driver.vulkan.errors import VulkanError, VulkanUnavailable
from webnn_vk.tools import ToolError

from . import PACK, graphs, spread
from .kernels import Kernel, NoPlan, of_pack, of_program


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chip")
    parser.add_argument("result", type=Path)
    parser.add_argument("parts", nargs="+")
    parser.add_argument("--statistics-only", action="store_true")
    parser.add_argument("--isa", type=Path)
    options = parser.parse_args()
    start = time.perf_counter()
    write = _writer(options.isa) if options.isa else None
    try:
        device = CompileOnlyDevice(options.chip)
        parts = {name: kernels_of(name, device.profile) for name in options.parts}
        kernels = compile_all(device, parts, not options.statistics_only, write)
    except (ChipUnavailable, VulkanUnavailable) as error:
        print(f"{error} (RADV's names of chips are needed, such as {', '.join(FAMILIES)})",
              file=sys.stderr)
        return 1
    except (NoPlan, ShaderUnavailable, ToolError) as error:
        print(error, file=sys.stderr)
        return 1
    result = {
        "chip": options.chip,
        "device": device.profile.name,
        "driver": f"{device.profile.driver_name} {device.profile.driver_version}",
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time(),
        "asked": {name: len(part) for name, part in parts.items()},
        "modules": {name: len({kernel.spec for kernel in part}) for name, part in parts.items()},
        "kernels": kernels,
    }
    options.result.write_text(json.dumps(result), encoding="utf-8")
    return 0


def kernels_of(part: str, profile: DeviceProfile) -> list[Kernel]:
    """The kernels of a part, as planned for a device."""
    if part == PACK:
        return of_pack(profile, spread.plans(profile))
    return of_program(graphs.compiled(part, profile))


def compile_all(
    device: CompileOnlyDevice, parts: dict[str, list[Kernel]], listings: bool = True,
    write: Callable[[str, Kernel, str], None] | None = None,
) -> list[dict[str, Any]]:
    """Statistics and instruction mix of each kernel, in the order of ``parts``; see `Judgement`."""
    jobs = [(part, kernel) for part, kernels in parts.items() for kernel in kernels]
    modules = ShaderStore().get([kernel.spec for _, kernel in jobs])

    def one(job: tuple[tuple[str, Kernel], bytes]) -> dict[str, Any]:
        (part, kernel), module = job
        entry = {"part": part, "name": kernel.name, "use": kernel.use, "statistics": {},
                 "mix": None, "error": None}
        try:
            compiled = device.compile(kernel.request(module), assembly=listings)
        except VulkanError as error:
            return entry | {"error": str(error)}
        if write:
            write(part, kernel, compiled.assembly)
        found = _plain(listing.parse(compiled.assembly)) if listings else None
        return entry | {"statistics": compiled.statistics, "mix": found}

    # The driver's compiler runs without the interpreter's lock.
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(one, zip(jobs, modules, strict=True)))


def _plain(blocks: Sequence[listing.Block]) -> dict[str, Any]:
    loop = listing.main_loop(blocks)
    found = _counts(listing.mix(blocks))
    return found | {"loop": _counts(listing.mix(loop)) | _order(loop) if loop else None}


def _order(loop: Sequence[listing.Block]) -> dict[str, Any]:
    """The figures of a loop besides its counts: the share of multiply-adds, and how many of them
    come before the last load is issued."""
    instructions = [i for block in loop for i in block.instructions]
    loads = [n for n, i in enumerate(instructions) if i.kind is listing.Kind.MEMORY]
    before = sum(i.multiply_adds for i in instructions[: loads[-1]]) if loads else 0
    return {"fma_share": listing.fma_share(listing.mix(loop)), "before_loads": before}


def _counts(found: listing.Mix) -> dict[str, Any]:
    return {
        "instructions": found.instructions,
        "kinds": {kind.value: found.kinds[kind] for kind in listing.Kind},
        "multiply_adds": found.multiply_adds,
        "lds": {str(width): count for width, count in sorted(found.lds.items())},
        "loads": {str(width): count for width, count in sorted(found.loads.items())},
        "stores": {str(width): count for width, count in sorted(found.stores.items())},
    }


def _writer(folder: Path) -> Callable[[str, Kernel, str], None]:
    folder.mkdir(parents=True, exist_ok=True)

    def write(part: str, kernel: Kernel, assembly: str) -> None:
        text = f"{kernel.spec.key()} {kernel.constants}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        stem = kernel.spec.template.removesuffix(".comp.j2")
        path = folder / f"{part}-{stem}-{digest}.s"
        path.write_text(f"; {kernel.name}\n; {kernel.use}\n{assembly}", encoding="utf-8")

    return write


if __name__ == "__main__":
    sys.exit(main())

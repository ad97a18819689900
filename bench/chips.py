"""`python -m bench chips`: our kernels under the compilers of six makers of GPUs.

One line for each chip of `webnn_vk.codegen.isa.chips` (or ``--chip``): how many pipelines compile,
spill and are refused, the longest compilation, and the least occupancy, as the driver counts it.
Kernels that spill, or don't compile within the limit, are listed below. Nothing runs.

``--json FILE`` puts the lines into a file, in which the lines of other chips and graphs stay. The
table in docs/devices.md is made of docs/chips.json.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from webnn_vk.codegen.isa import IsaError, Module, chip_profile, compile_for
from webnn_vk.codegen.isa.chips import CHIPS, chip_of
from webnn_vk.codegen.store import ShaderStore
from webnn_vk.driver.device_profile import DeviceProfile

from .isa import PACK, graphs, spread
from .isa.kernels import Kernel, of_pack, of_program, of_setup
from .table import show

#: The parts that are compiled by default.
MODELS = ("minilm_1x32", "minilm_8x64", "mobilenet_v2", "resnet50", "bert", "recurrent")
TITLES = (
    "chip", "product", "driver", "pipelines", "spilling", "refused", "longest", "occupancy",
    "cycles",
)


def kernels_of(part: str, profile: DeviceProfile) -> list[Kernel]:
    """The kernels of a model, of its set-up too, or of the shader archive, as planned for a device.
    """
    if part == PACK:
        return of_pack(profile, spread.plans(profile))
    program = graphs.compiled(part, profile)
    return [*of_program(program), *of_setup(program)]


def judged(chip: str, parts: Sequence[str], limit: float = 60.0) -> Iterator[dict[str, Any]]:
    """Each pipeline of the parts once, as compiled for a chip: "part", "kernel", "use", "state",
    "error", "seconds", and the figures of `Chip.figures`. Raises `IsaError`."""
    profile = DeviceProfile.from_json(chip_profile(chip))
    jobs = {
        (kernel.spec, kernel.constants): (part, kernel)
        for part in reversed(parts) for kernel in kernels_of(part, profile)
    }
    found = list(jobs.values())
    modules = ShaderStore().get([kernel.spec for _, kernel in found])
    results = compile_for(chip, [
        Module.of_spec(kernel.spec, module, kernel.constants, kernel.name)
        for (_, kernel), module in zip(found, modules, strict=True)
    ], assembly=False, limit=limit)
    for (part, kernel), result in zip(found, results, strict=True):
        yield {
            "part": part, "kernel": kernel.name, "use": kernel.use, "state": result.state,
            "error": result.error, "seconds": result.seconds,
            **chip_of(chip).figures(result.statistics),
        }


def main(chips: Sequence[str], parts: Sequence[str], json_file: Path | None) -> None:
    """Print the table, and put its lines into the file."""
    what = "models" if not parts else ", ".join(parts)
    rows, notes = [], []
    for chip in chips or [*CHIPS]:
        try:
            row = summary(chip, what, list(judged(chip, parts or MODELS)))
        except IsaError as error:
            notes.append(f"{chip}: {error}")
            continue
        rows.append(row)
        notes += [f"{chip}: {line}" for line in row["bad"]]
        if json_file:
            update(json_file, row)
    show(TITLES, [[str(row[title]) for title in TITLES] for row in rows])
    print(*notes, sep="\n")


def summary(chip: str, what: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A line of the table, with "bad": what spills, is refused, or takes too long."""
    driver = chip_of(chip).driver
    version = json.loads(chip_profile(chip))["driver_version"]
    occupancies = [row["occupancy"] for row in found if row["occupancy"] is not None]
    return {
        "chip": chip, "product": chip_of(chip).product, "driver": f"{driver.name} {version}",
        "graphs": what, "pipelines": len(found),
        "spilling": sum(bool(row["spills"]) for row in found),
        "refused": sum(row["state"] != "ok" for row in found),
        "longest": f"{max(row['seconds'] for row in found):.1f} s",
        "occupancy": min(occupancies, default=None), "cycles": _total(found, "cycles"),
        "date": datetime.date.today().isoformat(),
        "bad": [
            f"{row['part']}: {row['kernel']} ({row['use']}): "
            f"{row['error'] or '{spills} spills, {fills} fills'.format(**row)}"
            for row in found if row["spills"] or row["state"] != "ok"
        ],
    }


def _total(found: Sequence[dict[str, Any]], figure: str) -> float | None:
    known = [row[figure] for row in found if row[figure] is not None]
    return sum(known) if known else None


def update(path: Path, row: dict[str, Any]) -> None:
    """Put a line into a file of them, in place of an older one."""
    rows = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    key = row["graphs"], [*CHIPS].index(row["chip"])
    row = {name: value for name, value in row.items() if name != "bad"}
    kept = {(r["graphs"], [*CHIPS].index(r["chip"])): r for r in rows if r["chip"] in CHIPS}
    rows = [line for _, line in sorted({**kept, key: row}.items())]
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")

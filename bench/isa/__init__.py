"""Kernels compiled by AMD's compiler on a machine without a GPU: registers, spills, occupancy, ISA.

Mesa's RADV compiles for chips that are not in the machine (`webnn_vk.codegen.isa`). `judge(chip,
parts)` starts a process for the chip, since the driver reads its environment once, and returns its
results.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webnn_vk.codegen.isa import environment
from webnn_vk.tools import ToolError

#: The part that contains every kernel of the shader archive.
PACK = "pack"
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Judgement:
    """The results of a chip's compiler. ``asked``: the number of requested pipelines by part;
    ``modules``: the number of different SPIR-V modules by part. ``kernels``: one mapping per
    pipeline with "part", "name", "use", "statistics" (the driver's), "mix" (`listing.Mix` as plain
    data; None without listings) and "error" (None where it compiled)."""

    chip: str
    device: str
    driver: str
    seconds: float
    cpu_seconds: float
    asked: dict[str, int]
    modules: dict[str, int]
    kernels: list[dict[str, Any]]

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [kernel for kernel in self.kernels if kernel["error"]]

    @property
    def spilling(self) -> list[dict[str, Any]]:
        return [kernel for kernel in self.kernels if spills(kernel)]

    def lines(self) -> list[str]:
        """One line for the chip, and one for each kernel that fails or spills."""
        parts = ", ".join(
            f"{part} {count}" + (f" from {self.modules[part]} modules" if part == PACK else "")
            for part, count in self.asked.items()
        )
        compiled = len(self.kernels) - len(self.failed)
        lines = [
            f"{self.chip}: {compiled} of {sum(self.asked.values())} pipelines compiled ({parts}), "
            f"{len(self.spilling)} spill, {self.seconds:.1f} s ({self.cpu_seconds:.1f} s of CPU), "
            f"{self.driver}"
        ]
        lines += [f"  FAILED {title(k)}: {k['error']}" for k in self.failed]
        lines += [f"  spills {spills(k)} registers: {title(k)}" for k in self.spilling]
        return lines


def title(kernel: dict[str, Any]) -> str:
    """The part and the name of a kernel, the same in every run."""
    return f"{kernel['part']}: {kernel['name']}"


def spills(kernel: dict[str, Any]) -> int:
    """The number of vector and scalar registers that a kernel spills."""
    found = kernel["statistics"]
    return int(found.get("Spilled VGPRs", 0)) + int(found.get("Spilled SGPRs", 0))


def judge(
    chip: str, parts: Sequence[str], *, listings: bool = True, isa: Path | None = None,
    timeout: float | None = None,
) -> Judgement:
    """Compile for a chip the kernels of parts: names of `graphs.GRAPHS`, and `PACK` for every
    unfused kernel.

    listings: whether to read the ISA too, besides the driver's statistics. isa: a folder to write
    each kernel's assembly to. Raises `NoDriver`, and `ToolError` for a chip that the driver doesn't
    know or a process that fails.
    """
    arguments = [*parts]
    arguments += ["--statistics-only"] if not (listings or isa) else []
    arguments += ["--isa", str(isa.absolute())] if isa else []
    return Judgement(**result_of("bench.isa.child", chip, arguments, timeout))


def result_of(module: str, chip: str, arguments: Sequence[str], timeout: float | None) -> Any:
    """The JSON that `python -m MODULE CHIP RESULT.json ARGUMENTS` writes with the driver and the
    chip in its environment. Raises `NoDriver`, and `ToolError` for a process that fails."""
    with tempfile.TemporaryDirectory(prefix="webnn_vk-isa-") as folder:
        result = Path(folder, "result.json")
        done = subprocess.run(
            [sys.executable, "-m", module, chip, str(result), *arguments], cwd=_ROOT,
            env=environment(chip), capture_output=True, text=True, timeout=timeout,
        )
        if done.returncode:
            reason = (done.stderr or done.stdout).strip()[-2000:]
            raise ToolError(f"compiling for {chip} failed ({done.returncode}): {reason}")
        return json.loads(result.read_text(encoding="utf-8"))

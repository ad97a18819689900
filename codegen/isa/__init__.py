"""Kernels compiled by AMD's compiler on a machine without a GPU: registers, spills, occupancy, ISA.

Mesa's RADV compiles for chips that are not in the machine. It reads the name of the chip from the
environment when it is loaded, so each chip needs a separate process (only this process opens
Vulkan). Requests and answers are plain data. `listing` parses the ISA, `text` presents it.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webnn_vk.codegen.spec import KernelSpec, push_bytes
from webnn_vk.support import environment as variables

#: GCN 5, RDNA 2, RDNA 3: the chips that the tests compile for.
CHIPS = ("VEGA10", "NAVI21", "GFX1100")
_MANIFESTS = ("/usr/share/vulkan/icd.d/radeon_icd.*.json", "/etc/vulkan/icd.d/radeon_icd.*.json")
#: The exit status of the process where the driver does not know the chip.
NO_CHIP = 3
_PROCESS = "webnn_vk.driver.vulkan.compile_only.process"


class IsaError(RuntimeError):
    """Compiling for a chip is impossible; the message gives the reason in one line."""


class NoDriver(IsaError):
    """RADV is not installed."""


@dataclass(frozen=True)
class Module:
    """The description of a pipeline: SPIR-V with ``bindings`` buffers at the bindings 0, 1, … of
    set 0, ``push_size`` bytes of push constants, (id, 4 bytes) for each specialisation constant,
    and the numbers of the bindings that are uniform texel buffers."""

    name: str
    spirv: bytes
    bindings: int
    push_size: int = 0
    constants: tuple[tuple[int, bytes], ...] = ()
    texels: tuple[int, ...] = ()

    @classmethod
    def of_spec(
        cls, spec: KernelSpec, spirv: bytes, constants: tuple[tuple[int, bytes], ...], name: str
    ) -> Module:
        """The pipeline of a kernel's module."""
        texels = tuple(binding for binding, _ in spec.texels)
        return cls(name, spirv, spec.binding_count, push_bytes(spec), constants, texels)

    @property
    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name, "spirv": base64.b64encode(self.spirv).decode(),
            "bindings": self.bindings, "push_size": self.push_size,
            "constants": [(number, value.hex()) for number, value in self.constants],
            "texels": self.texels,
        }


@dataclass(frozen=True)
class Compiled:
    """A compiled module: the driver's statistics by name, and the assembly. Both are empty where
    compiling failed; then ``error`` gives the reason."""

    statistics: dict[str, int | float]
    assembly: str
    error: str | None = None


def manifest() -> Path:
    """RADV's manifest for the Vulkan loader; `NoDriver` where it is not installed."""
    for pattern in _MANIFESTS:
        path = Path(pattern)
        found = sorted(path.parent.glob(path.name))
        if found:
            return found[0]
    raise NoDriver("RADV is not installed (Debian/Ubuntu: apt install mesa-vulkan-drivers)")


def environment(chip: str) -> dict[str, str]:
    """The environment of a process in which RADV compiles for a chip. `NoDriver` without RADV."""
    radv = str(manifest())
    return variables.changed({
        "RADV_FORCE_FAMILY": chip, "VK_ICD_FILENAMES": radv, "VK_DRIVER_FILES": radv,
        # With Mesa's cache nothing would be compiled. The validation layer is of no use here.
        "MESA_SHADER_CACHE_DISABLE": "true", "WEBNN_VK_VALIDATE": "0", "VK_INSTANCE_LAYERS": "",
    })


def chip_profile(chip: str) -> str:
    """The features and limits of a chip, in the form of `DeviceProfile.from_json`. ``chip``: RADV's
    name, such as "NAVI21". Raises `IsaError` for a chip that the driver doesn't know."""
    return str(_ask(chip, [])["profile"])


def compile_for(chip: str, modules: Sequence[Module]) -> list[Compiled]:
    """Compile modules for a chip; the results are in their order. Nothing runs. Raises `IsaError`
    for a chip that the driver doesn't know."""
    return [Compiled(**entry) for entry in _ask(chip, modules)["compiled"]]


def _ask(chip: str, modules: Sequence[Module]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="webnn_vk-isa-") as folder:
        result = Path(folder, "result.json")
        done = subprocess.run(
            [sys.executable, "-m", _PROCESS, chip, str(result)], env=environment(chip),
            input=json.dumps([module.data for module in modules]), capture_output=True, text=True,
        )
        if done.returncode == NO_CHIP:
            raise IsaError(f"{chip} can't be compiled for: {done.stderr.strip()} (RADV's names of "
                           f"chips are needed, such as {', '.join(CHIPS)})")
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [
                f"RADV ended its process (status {done.returncode})"
            ]
            raise IsaError(f"compiling for {chip}: {lines[-1]}")
        return dict(json.loads(result.read_text(encoding="utf-8")))

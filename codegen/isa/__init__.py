"""Kernels compiled for GPUs that are not in the machine: registers, spills, occupancy, ISA.

Mesa's drivers compile for such chips: the chips of `chips.CHIPS` by drivers that
``scripts/install-chips`` lays down, AMD's also by the installed RADV. A driver reads the name of
the chip from the environment when it is loaded, so each chip needs a separate process (only this
process opens Vulkan). Requests and answers are plain data. `listing` parses AMD's ISA, `text`
presents it.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from webnn_vk.codegen.spec import KernelSpec, push_bytes
from webnn_vk.support import environment as variables
from webnn_vk.support.dataclass import dataclass

from .chips import CHIPS, command, missing

#: GCN 5, RDNA 2, RDNA 3 by the names of the installed RADV: what the tests compile for.
FAMILIES = ("VEGA10", "NAVI21", "GFX1100")
_MANIFESTS = ("/usr/share/vulkan/icd.d/radeon_icd.*.json", "/etc/vulkan/icd.d/radeon_icd.*.json")
#: The exit status of the process where the driver does not know the chip.
NO_CHIP = 3
#: Limits in seconds: to start a process, which qemu makes slow, and to compile a module.
START, LIMIT = 300.0, 60.0
_PROCESS = "webnn_vk.driver.vulkan.compile_only.process"
#: Modules that the process imports, except the packages that are laid down with a driver.
_PACKAGES = ("webnn_vk", "vulkan", "platformdirs")


class IsaError(RuntimeError):
    """Compiling for a chip is impossible; the message gives the reason in one line."""


class NoDriver(IsaError):
    """The driver of a chip is not installed."""


@dataclass(frozen=True)
class Module:
    """The description of a pipeline: SPIR-V with ``bindings`` buffers at the bindings 0, 1, … of
    set 0, ``push_size`` bytes of push constants, (id, 4 bytes) for each specialisation constant,
    the numbers of the bindings that are uniform texel buffers, and the required size of subgroups
    (0: any)."""

    name: str
    spirv: bytes
    bindings: int
    push_size: int = 0
    constants: tuple[tuple[int, bytes], ...] = ()
    texels: tuple[int, ...] = ()
    subgroup_size: int = 0

    @classmethod
    def of_spec(
        cls, spec: KernelSpec, spirv: bytes, constants: tuple[tuple[int, bytes], ...], name: str
    ) -> Module:
        """The pipeline of a kernel's module."""
        texels = tuple(binding for binding, _ in spec.texels)
        return cls(name, spirv, spec.binding_count, push_bytes(spec), constants, texels,
                   spec.subgroup_size(constants))

    @property
    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **asdict(self), "spirv": base64.b64encode(self.spirv).decode(),
            "constants": [(number, value.hex()) for number, value in self.constants],
        }


@dataclass(frozen=True)
class Compiled:
    """A compiled module: the driver's statistics by name, and the assembly. Both are empty where
    compiling failed; then ``error`` gives the reason, and ``state`` is not "ok" but "refused",
    "crash" or "timeout". ``seconds``: of the processor, to compile."""

    statistics: dict[str, int | float]
    assembly: str = ""
    error: str | None = None
    state: str = "ok"
    seconds: float = 0.0


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
    """The features and limits of a chip, in the form of `DeviceProfile.from_json`. ``chip``: one of
    `chips.CHIPS`, or a name that the installed RADV knows, such as "NAVI21". Raises `IsaError` for
    an unknown chip, `NoDriver` where its driver is not installed. The number of multiprocessors is
    left out: without the chip some drivers make it up."""
    with _Process(chip, [], False) as process:
        return json.dumps(process.started()["profile"] | {"multiprocessors": 0})


def compile_for(
    chip: str, modules: Sequence[Module], *, assembly: bool = True, limit: float = LIMIT
) -> list[Compiled]:
    """Compile modules for a chip; the results are in their order. Nothing runs. A module that
    crashes the driver, or takes longer than ``limit`` seconds, does not concern the others. Raises
    as `chip_profile`. assembly: whether to disassemble, which takes a large part of the time."""
    results: list[Compiled] = []
    while len(results) < len(modules):
        done = len(results)
        rest = modules[done:]
        with _Process(chip, rest, assembly) as process:
            process.started()
            try:
                for _ in rest:
                    results.append(Compiled(**process.answer(limit)))
            except _Ended as ended:
                # Some drivers crash after hundreds of modules. It is a module's fault only if it
                # is the first of its process.
                if ended.state == "crash" and len(results) > done:
                    continue
                results.append(Compiled({}, error=str(ended), state=ended.state))
    return results


class _Ended(IsaError):
    """A process for a chip ended before it answered."""

    def __init__(self, message: str, state: str) -> None:
        super().__init__(message)
        self.state = state


class _Process:
    """A process that compiles modules for a chip, one after another."""

    def __init__(self, chip: str, modules: Sequence[Module], assembly: bool) -> None:
        self._chip, self._open = chip, ExitStack()
        arguments = ["-m", _PROCESS, "-" if chip in CHIPS else chip, *["--assembly"] * assembly]
        with self._open:
            packages = self._open.enter_context(tempfile.TemporaryDirectory(prefix="webnn_vk-isa-"))
            words, variables = _command(chip, Path(packages), arguments)
            self._told = self._open.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
            self._process = self._open.enter_context(subprocess.Popen(
                words, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._told, encoding="utf-8",
            ))
            self._open.callback(self._process.kill)
            assert self._process.stdin is not None
            with suppress(BrokenPipeError), self._process.stdin as given:
                json.dump([module.data for module in modules], given)
            self._open = self._open.pop_all()

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def started(self) -> dict[str, Any]:
        """The first answer, which has the chip's profile. `_Ended` where there is none."""
        return self.answer(START, f"starting the driver of {self._chip}")

    def answer(self, limit: float, what: str = "") -> dict[str, Any]:
        """The next answer. `_Ended` where there is none within ``limit`` seconds: ``what`` took
        longer, by default compiling."""
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(limit, end)
        timer.start()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        timer.cancel()
        if line.endswith("\n"):
            return dict(json.loads(line))
        status = self._process.wait()
        self._told.seek(0)
        lines = [line for line in self._told.read().splitlines() if line.strip()]
        if late.is_set():
            what = what or f"compiling for {self._chip}"
            raise _Ended(f"{what} took longer than {limit:g} s", "timeout")
        if status == NO_CHIP:
            raise IsaError(f"{self._chip} can't be compiled for: {lines[-1]} (chips are "
                           f"{', '.join(CHIPS)}, or RADV's names such as {', '.join(FAMILIES)})")
        reason = lines[-1] if lines else f"the driver ended its process (status {status})"
        raise _Ended(f"compiling for {self._chip}: {reason}", "crash")


def _command(
    chip: str, packages: Path, arguments: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """The words and the environment of a process for a chip. ``packages``: an empty folder."""
    if chip not in CHIPS:
        return [sys.executable, *arguments], environment(chip)
    if reason := missing(CHIPS[chip]):
        raise NoDriver(reason)
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise NoDriver(f"the package {name} is not installed")
        packages.joinpath(name).symlink_to(Path(spec.origin).resolve().parent)
    return command(CHIPS[chip], packages, arguments)

"""Chips that modules are compiled for without the chip, by Mesa's drivers.

A shim answers a driver in place of the kernel, so that the driver opens a chip that the machine
does not have. ``scripts/install-chips`` lays the drivers and shims down, with a Python to start
them: Debian's packages of two releases of Mesa. Most are for x86-64; a driver that is packaged for
arm64 alone runs under qemu.
Nothing is executed on a chip: only its compiler runs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from webnn_vk.support import environment
from webnn_vk.support.dataclass import dataclass

#: Releases of Debian, with their versions of Mesa: 25.0 and 26.1.
_OLDER, _NEWER = "trixie", "trixie-backports"
_TRIPLES = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}


@dataclass(frozen=True)
class Driver:
    """A driver of Mesa, and the names that it gives to figures of a compiled kernel. Several names
    are added up; without a name the driver does not report the figure.

    manifest: the name of its file for the Vulkan loader. shim: the name of the shim's library.
    spills, fills: instructions that store registers in memory and load them again (RADV: registers,
    and no fills). scratch: bytes of memory for these and for arrays that are not in registers.
    occupancy: as the driver counts it, see `docs/devices.md`. cycles: an estimate.
    """

    name: str
    manifest: str
    shim: str
    registers: str = ""
    spills: tuple[str, ...] = ("Spills",)
    fills: tuple[str, ...] = ("Fills",)
    occupancy: str = "Threads"
    cycles: tuple[str, ...] = ()
    scratch: str = ""
    architecture: str = "amd64"
    release: str = _NEWER


RADV = Driver(
    "RADV", "radeon", "amdgpu", "VGPRs", ("Spilled VGPRs", "Spilled SGPRs"), (),
    "Subgroups per SIMD", ("Inverse Throughput",), "Scratch size",
)
NVK = Driver(
    "NVK", "nouveau", "nouveau", "Number of GPRs", ("Spills to memory",), ("Fills from memory",),
    "Max warps/SM", ("Static cycle count",), "SLM size",
)
# Its shim is not packaged, and is built from the sources of the older release.
ANV = Driver(
    "ANV", "intel", "intel", "Max live registers", ("Spill Count",), ("Fill Count",),
    "Max dispatch width", ("Cycle Count",), "Scratch Memory Size", release=_OLDER,
)
TURNIP = Driver(
    "Turnip", "freedreno", "freedreno", "Registers used", ("STP Count",), ("LDP Count",),
    "Max Waves Per Core", (
        "Instruction Count", "Estimated cycles stalled on SS", "Estimated cycles stalled on SY",
    ),
)
PANVK = Driver(
    "PanVK", "panfrost", "panfrost", "Registers used", cycles=("Cycles",), architecture="arm64",
)
HONEYKRISP = Driver("Honeykrisp", "asahi", "asahi", "GPRs")


@dataclass(frozen=True)
class Chip:
    """A chip. ``variables``: the environment by which the shim or the driver chooses it."""

    name: str
    product: str
    driver: Driver
    variables: dict[str, str] = field(default_factory=dict, hash=False)

    def figures(self, statistics: dict[str, int | float]) -> dict[str, int | float | None]:
        """"spills", "fills", "scratch", "registers", "occupancy" and "cycles" from the driver's
        statistics; None where it doesn't report the figure."""
        driver = self.driver

        def total(*names: str) -> int | float | None:
            known = [statistics[name] for name in names if name in statistics]
            return sum(known) if known else None

        return {
            "spills": total(*driver.spills), "fills": total(*driver.fills),
            "scratch": total(driver.scratch), "registers": total(driver.registers),
            "occupancy": total(driver.occupancy), "cycles": total(*driver.cycles),
        }


def _chips(driver: Driver, variable: str, *rows: tuple[str, str, str]) -> dict[str, Chip]:
    return {name: Chip(name, product, driver, {variable: value}) for name, value, product in rows}


CHIPS: dict[str, Chip] = {
    **_chips(
        NVK, "NOUVEAU_CHIPSET",
        ("pascal", "132", "NVIDIA GeForce GTX 1080"), ("volta", "140", "NVIDIA Titan V"),
        ("turing", "162", "NVIDIA GeForce RTX 2080"), ("ampere", "172", "NVIDIA GeForce RTX 3090"),
    ),
    **_chips(
        ANV, "INTEL_STUB_GPU_PLATFORM",
        ("skl", "skl", "Intel HD Graphics 530"), ("tgl", "tgl", "Intel Iris Xe"),
        ("dg2", "dg2", "Intel Arc A770"), ("lnl", "lnl", "Intel Arc 140V"),
        ("bmg", "bmg", "Intel Arc B580"),
    ),
    **_chips(
        TURNIP, "FD_GPU_ID",
        *((f"adreno{n}", n, f"Qualcomm Adreno {n}") for n in ("630", "660", "730", "750")),
    ),
    "mali-g610": Chip("mali-g610", "Arm Mali-G610", PANVK, {
        "PAN_GPU_ID": "a867", "PAN_I_WANT_A_BROKEN_VULKAN_DRIVER": "1",
    }),
    "m1": Chip("m1", "Apple M1", HONEYKRISP),
    **_chips(
        RADV, "AMDGPU_GPU_ID",
        ("vega10", "vega10", "AMD Radeon RX Vega 64"), ("navi10", "navi10", "AMD Radeon RX 5700"),
        ("navi21", "navi21", "AMD Radeon RX 6800"), ("navi31", "navi31", "AMD Radeon RX 7900 XTX"),
        ("gfx1201", "gfx1201", "AMD Radeon RX 9070"),
    ),
}


def chip_of(name: str) -> Chip:
    """The chip of `CHIPS` with this name; others are AMD's, for the installed RADV."""
    return CHIPS.get(name) or Chip(name, name, RADV)


def folder() -> Path:
    """The folder of the drivers: WEBNN_VK_CHIPS, by default "chips" in the user's cache."""
    given = environment.text("WEBNN_VK_CHIPS")
    return Path(given) if given else (environment.user_cache_folder() or Path()) / "chips"


def missing(chip: Chip) -> str | None:
    """Why a chip's driver can't be started, with the remedy; None where it is there."""
    driver = chip.driver
    root = _root(driver)
    if _manifest(root, driver).is_file() and _shim(root, driver).is_file():
        return None
    return (f"{driver.name} for {chip.name} is not in {folder()}: scripts/install-chips lays it "
            "down")


def _root(driver: Driver) -> Path:
    return folder().absolute() / driver.release / driver.architecture


def _libraries(root: Path, driver: Driver) -> Path:
    return root / "usr/lib" / _TRIPLES[driver.architecture]


def _shim(root: Path, driver: Driver) -> Path:
    return _libraries(root, driver) / f"lib{driver.shim}_noop_drm_shim.so"


def _manifest(root: Path, driver: Driver) -> Path:
    return root / "usr/share/vulkan/icd.d" / f"{driver.manifest}_icd.json"


def command(
    chip: Chip, packages: Path, arguments: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """The words and the environment of a process that runs Python with ``arguments`` and sees only
    this chip. ``packages``: a folder with the packages that it imports; NumPy and cffi are there.
    """
    driver = chip.driver
    root = _root(driver)
    libraries = _libraries(root, driver)
    # NumPy's BLAS is where Debian's alternatives would point to.
    path = ":".join(str(libraries / name) for name in ("", "blas", "lapack"))
    shim = str(_shim(root, driver))
    python = str(sorted(root.glob("usr/bin/python3.[0-9]*"))[0])
    manifest = str(_manifest(root, driver))
    own = {
        **chip.variables, "VK_ICD_FILENAMES": manifest, "VK_DRIVER_FILES": manifest,
        # Layers of this machine were built for other libraries. A cache would hide the compiler.
        "VK_LOADER_LAYERS_DISABLE": "*", "MESA_SHADER_CACHE_DISABLE": "true",
        "PYTHONHOME": str(root / "usr"), "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": f"{packages}:{root / 'usr/lib/python3/dist-packages'}",
        "OPENBLAS_NUM_THREADS": "1", "WEBNN_VK_CACHE": "off", "WEBNN_VK_VALIDATE": "0",
        "HOME": str(packages), "LANG": "C.UTF-8", "PATH": os.defpath,
    }
    if driver.architecture == "amd64":
        loader = str(root / "lib64/ld-linux-x86-64.so.2")
        return [loader, "--library-path", path, "--preload", shim, python, *arguments], own
    own |= {"LD_LIBRARY_PATH": path, "LD_PRELOAD": shim}
    given = [word for name, value in own.items() for word in ("-E", f"{name}={value}")]
    # qemu itself runs with this machine's libraries.
    qemu = str(root.parent / "qemu/usr/bin/qemu-aarch64")
    return [qemu, "-L", str(root), *given, python, *arguments], {"PATH": os.defpath}

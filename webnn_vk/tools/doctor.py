"""`webnn-vk doctor`: what contexts run on in this machine and why, and what would be faster."""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import field
from typing import Any

import webnn_vk
from webnn_vk.codegen.archive import ARCHIVE_PATH, ArchiveError, ShaderArchive, find_archive
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.disk_cache import cache_state
from webnn_vk.codegen.glsl import CompilerUnavailable
from webnn_vk.runtime.device_selection import probe_drivers
from webnn_vk.runtime.engine_selection import find_engine
from webnn_vk.support import environment
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.settings import Settings

from .devices import default_device, listing, vulkan_problem
from .output import emit

_PACKAGES = ("numpy", "vulkan", "jinja2", "platformdirs", "typer", "rich")
_OPTIONAL = ("vkdispatch-vulkan-native", "wgpu", "onnx", "onnxruntime", "safetensors", "tokenizers")
_COMPILER = (
    "install a GLSL compiler (Debian, Ubuntu: apt install glslang-tools; or pip install "
    "vkdispatch-vulkan-native)"
)
#: Settings that cost time, with the reason.
_SLOW = {
    "WEBNN_VK_VALIDATE": "the validation layer checks every Vulkan call",
    "WEBNN_VK_MASK": "shaders don't use the features named there",
    "WEBNN_VK_FORCE_CPU": "the operators named there run on the CPU",
    "WEBNN_VK_SKIP_PASSES": "the optimisations named there are skipped",
    "WEBNN_VK_DUMP": "every graph built is written to a folder",
    "WEBNN_VK_VERIFY_PASSES": "graphs are verified after every pass, and GLSL must compile",
}


@dataclass
class Findings:
    """The results of the examination. ``default``: the device that ``create_context()`` takes, with
    the reason; None where it fails. ``problems``: errors; ``faster``: advice."""

    versions: dict[str, str]
    driver: str
    devices: list[dict[str, Any]]
    default: dict[str, Any] | None
    compiler: dict[str, Any]
    pack: dict[str, Any]
    cache: dict[str, Any]
    environment: dict[str, str]
    cpu_engine: str = ""
    problems: list[str] = field(default_factory=list)
    faster: list[str] = field(default_factory=list)


def examine() -> Findings:
    """Examine everything. Nothing is built or written."""
    problems: list[str] = []
    default = None
    probe_drivers()  # earlier results may be outdated
    try:
        default = default_device()
    except Exception as error:  # any error, as create_context() rejects with it
        problems.append(f"ml.create_context() fails: {error}")
    no_driver = vulkan_problem()
    try:
        devices = listing()
    except Exception as error:
        problems.append(f"the devices can't be listed: {error}")
        devices = []
    problems += [
        f"{device['name']} can't be used: {device['unusable']}"
        for device in devices
        if device["unusable"]
    ]
    found = Findings(
        _versions(),
        no_driver or "",
        devices,
        default,
        _compiler(problems),
        _pack(problems),
        cache_state(),
        environment.given(),
        _cpu_engine(problems),
        problems,
    )
    on_vulkan = default is not None and default["index"] is not None
    if on_vulkan and not found.compiler["available"] and not found.pack["available"]:
        problems.append(
            "neither a GLSL compiler nor precompiled shaders: the Vulkan device is open, but "
            f"operators run on the CPU; {_COMPILER}"
        )
    if found.cache["problem"]:
        problems.append(found.cache["problem"])
    found.faster = advice(found)
    return found


def runs_on(found: Findings) -> str:
    """The device that `create_context()` runs graphs on, in one line."""
    if found.default is None:
        return "nothing: create_context() fails"
    if found.default["index"] is None:
        return f"{found.default['name']}: {found.default['reason']}"
    device = f"{found.default['name']}, on Vulkan"
    if found.compiler["available"]:
        return f"{device}: fused kernels, compiled by {found.compiler['version']}"
    why = f"there is no GLSL compiler ({found.compiler['version']})"
    if found.pack["available"]:
        return f"{device}: precompiled kernels, unfused, as {why}"
    return f"the CPU, not {device}: {why} and no precompiled kernel"


def advice(found: Findings) -> list[str]:
    """Advice on how to make the library faster, from the findings."""
    said = []
    gpus = [d for d in found.devices if d["is_gpu"] and not d["unusable"]]
    if not gpus:
        said.append(
            "a GPU with a Vulkan driver (Debian, Ubuntu: apt install mesa-vulkan-drivers for AMD "
            "and Intel; NVIDIA's own driver brings it)"
        )
    elif found.default is not None and found.default["index"] not in [d["index"] for d in gpus]:
        said.append(f"take the GPU: WEBNN_VK_DEVICE={gpus[0]['index']}")
    if not found.compiler["available"]:
        said.append(f"{_COMPILER}: operators are then fused into fewer kernels")
    elif not found.compiler["in_process"]:
        said.append(
            "pip install vkdispatch-vulkan-native (Linux x86_64): shaders are then compiled "
            "without starting a program for each"
        )
    if not found.pack["available"]:
        said.append("install the wheel: its precompiled shaders save compiling at the first build")
    if found.cache["folder"] is None:
        said.append("unset WEBNN_VK_CACHE=off: compiled shaders are then kept for the next process")
    if found.cpu_engine.startswith("NumPy"):
        said.append(
            "unset WEBNN_VK_CPU_ENGINE=numpy: ONNX Runtime is many times as fast on the CPU"
            if "onnxruntime" in found.versions and "onnx" in found.versions
            else "pip install 'webnn_vk[cpu]': ONNX Runtime is many times as fast as NumPy on the "
            "CPU"
        )
        software = [d for d in found.devices
                    if not d["is_gpu"] and d["index"] is not None and not d["unusable"]]
        if software and found.default is not None and found.default["index"] is None:
            said.append(
                f"WEBNN_VK_DEVICE={software[0]['index']} takes {software[0]['text']}: software "
                "Vulkan, too, is faster than NumPy"
            )
    for name, cost in _SLOW.items():
        if found.environment.get(name, "0") != "0":
            said.append(f"unset {name}: {cost}")
    return said


def _versions() -> dict[str, str]:
    versions = {
        "webnn_vk": webnn_vk.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    for name in (*_PACKAGES, *_OPTIONAL):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if name in _PACKAGES:
                versions[name] = "missing"
    return versions


def _cpu_engine(problems: list[str]) -> str:
    """The engine that computes steps on the CPU."""
    try:
        return find_engine(Settings.from_environment().cpu_engine).description
    except (ValueError, webnn_vk.DOMException) as error:
        problems.append(str(error))
        return "none"


def _compiler(problems: list[str]) -> dict[str, Any]:
    try:
        compiler = find_compiler()
        if compiler is None:
            reason = "none found"
            if environment.text("WEBNN_VK_GLSLANG") == "none":
                reason = "forbidden by WEBNN_VK_GLSLANG=none"
            return {"available": False, "version": reason, "in_process": False}
        version = compiler.version
        return {"available": True, "version": version, "in_process": version.startswith("glslang ")}
    except (CompilerUnavailable, ValueError) as error:
        problems.append(f"the GLSL compiler does not work: {error}")
        return {"available": False, "version": str(error), "in_process": False}


def _pack(problems: list[str]) -> dict[str, Any]:
    found = find_archive()
    path = str(found or ARCHIVE_PATH)
    nothing = {"available": False, "path": path, "modules": 0, "bytes": 0, "compiler": ""}
    if found is None:
        return nothing
    try:
        pack = ShaderArchive(path)
    except ArchiveError as error:
        problems.append(f"the precompiled shaders are not used: {error}")
        return nothing
    size = pack.path.stat().st_size
    compiler = str(pack.about.get("compiler", ""))
    return {"available": True, "path": path, "modules": len(pack), "bytes": size,
            "compiler": compiler}


def text(found: Findings) -> str:
    """The findings as text: a line each, then problems and advice."""
    lines = []

    def say(title: str, *values: str) -> None:
        for number, value in enumerate(values):
            lines.append(f"{title if number == 0 else '':<12}{value}")

    say("Runs on", runs_on(found))
    say("Versions", ", ".join(f"{name} {version}" for name, version in found.versions.items()))
    say("Driver", f"no Vulkan: {found.driver}" if found.driver else "Vulkan works")
    for number, device in enumerate(found.devices):
        index = "cpu" if device["index"] is None else str(device["index"])
        say("" if number else "Devices", f"{index:>3}  {device['text']}")
    if found.default is None:
        say("Default", "none: create_context() fails")
    else:
        say("Default", f"{found.default['name']}: {found.default['reason']}")
    say("CPU engine", found.cpu_engine)
    say("Compiler", found.compiler["version"])
    pack = found.pack
    say(
        "Pack",
        f"{pack['modules']} precompiled shaders, {pack['bytes'] / 1e6:.2f} MB, by "
        f"{pack['compiler']}: {pack['path']}" if pack["available"] else f"none at {pack['path']}",
    )
    cache = found.cache
    say(
        "Cache",
        "off" if cache["folder"] is None else
        f"{cache['entries']} shaders, {cache['bytes'] / 1e6:.2f} MB: {cache['folder']}",
    )
    say("Environment", *(f"{name}={value}" for name, value in found.environment.items()))
    say("Faster with", *found.faster)
    say("Problems", *(found.problems or ["none"]))
    return "\n".join(lines)


def report(as_json: bool) -> int:
    """Print the findings; the exit status: 0, or 1 when something is wrong."""
    found = examine()
    if as_json:
        emit({"runs_on": runs_on(found), **vars(found)})
    else:
        print(text(found))
    return int(bool(found.problems))

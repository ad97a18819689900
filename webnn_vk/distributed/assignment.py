"""Which device an engine assigned to this worker.

No Vulkan driver reads ``CUDA_VISIBLE_DEVICES`` and its kin, and devices of one kind have one name.
So what the engine says is followed to a UUID or a PCI address, and from there to a Vulkan device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webnn_vk.driver import DriverError
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.runtime.device_selection import find_devices
from webnn_vk.support import environment
from webnn_vk.support.errors import NotSupportedError, sanitize

from . import gpus
from .gpus import Gpu

CPU = "cpu"
_AMD_MASKS = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_MASKS = (*_AMD_MASKS, "CUDA_VISIBLE_DEVICES")
_NONE = ("", "-1", "NoDevFiles")
_ORDER = "CUDA_DEVICE_ORDER"


@dataclass(frozen=True)
class Assigned:
    """What an engine assigned: GPUs by the engine's names, none for a worker on the CPU. ``source``
    says where that is written; ``order`` how indices count: "cuda", "nvml" or "hip"."""

    source: str
    names: tuple[str, ...]
    order: str = "cuda"


def assigned_device() -> str | None:
    """The device that the engine assigned to this process, for ``Settings(device=…)``:
    "uuid:…" or "pci:…", "cpu" for a worker without a GPU, None if nothing is assigned (outside of
    engines, without masks). A line on stderr says which, and why.

    In this order it follows ``WEBNN_VK_DEVICE``, the accelerator ids of a Ray worker, the GPU
    resource of a Spark task, and the masks ``HIP_VISIBLE_DEVICES``, ``ROCR_VISIBLE_DEVICES`` and
    ``CUDA_VISIBLE_DEVICES``. Of several assigned GPUs it is the first. Waits for the drivers.

    NotSupportedError if the assigned GPU has no Vulkan device here, which is never replaced by
    another, or if an index counts in an order that can't be known: without
    ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` CUDA's order of several GPUs is CUDA's secret.
    """
    asked = environment.text("WEBNN_VK_DEVICE")
    if asked:
        _say(f"WEBNN_VK_DEVICE asks for {sanitize(asked)}")
        return asked
    variables = environment.of_engines()
    found = _from_ray(variables) or _from_spark() or from_masks(variables)
    if found is None:
        return None
    if not found.names:
        _say(f"{found.source} assigns no GPU: the CPU device is used")
        return CPU
    profile, device = resolve(found, variables, _vulkan_devices())
    others = f", the first of {len(found.names)}" if len(found.names) > 1 else ""
    _say(f"{found.source} assigns GPU {sanitize(found.names[0])}{others}: {profile.name}, {device}")
    return device


def assigned_cores() -> int | None:
    """The number of processor cores that Ray or Spark assigned to this worker; None outside."""
    ray = _ray_worker()
    if ray is not None:
        return max(1, int(ray.get_assigned_resources().get("CPU", 1)))
    task = _spark_task()
    return None if task is None else max(1, int(task.cpus()))


def _say(text: str) -> None:
    print(f"webnn_vk: {text}", file=sys.stderr, flush=True)


def _ray_worker() -> Any:
    """The context of this process as a worker of Ray; None elsewhere."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    return context if context.worker.mode == ray.WORKER_MODE else None


def _from_ray(variables: Mapping[str, str]) -> Assigned | None:
    worker = _ray_worker()
    if worker is None:
        return None
    ids = worker.get_accelerator_ids().get("GPU", [])
    amd = "HIP_VISIBLE_DEVICES" in variables and "CUDA_VISIBLE_DEVICES" not in variables
    return Assigned("Ray", tuple(map(str, ids)), "hip" if amd else "cuda")


def _spark_task() -> Any:
    """The Spark task in this process; None elsewhere."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import TaskContext

    return TaskContext.get()


def _from_spark() -> Assigned | None:
    task = _spark_task()
    if task is None:
        return None
    resource = task.resources().get("gpu")
    # Spark's own script for finding GPUs writes the indices of nvidia-smi.
    return Assigned("Spark", () if resource is None else tuple(resource.addresses), "nvml")


def from_masks(variables: Mapping[str, str]) -> Assigned | None:
    """What the masks of CUDA and ROCm leave visible; None if none is set."""
    given = {name: variables[name] for name in _MASKS if name in variables}
    if not given:
        return None
    name = next(iter(given))
    names = []
    for word in given[name].split(","):
        word = word.strip()
        if word in _NONE:  # as CUDA reads it: the rest is invisible
            break
        names.append(word)
    if names and "CUDA_VISIBLE_DEVICES" in given and name != "CUDA_VISIBLE_DEVICES":
        cuda = given["CUDA_VISIBLE_DEVICES"]
        if cuda not in (*_NONE, given[name]):
            raise NotSupportedError(
                f"{name}={sanitize(given[name])} and CUDA_VISIBLE_DEVICES={sanitize(cuda)} assign "
                "different GPUs; set one of them, or WEBNN_VK_DEVICE=uuid:…"
            )
    order = {"CUDA_VISIBLE_DEVICES": "cuda", "HIP_VISIBLE_DEVICES": "hip"}.get(name, "rocr")
    return Assigned(f"{name}={sanitize(given[name])}", tuple(names), order)


def resolve(
    found: Assigned, variables: Mapping[str, str], devices: Sequence[Any],
    nvidia: Callable[[], list[Gpu]] | None = None, amd: Callable[[], list[Gpu]] | None = None,
) -> tuple[DeviceProfile, str]:
    """The Vulkan device of the first assigned GPU, and its name for ``Settings``. ``devices``: as
    ``find_devices`` gives them; ``nvidia`` and ``amd`` list the makers' GPUs. NotSupportedError as
    ``assigned_device``."""
    name = found.names[0]
    lists = _Lists(nvidia or gpus.nvidia_gpus, amd or gpus.amd_gpus)
    if name.isdecimal():
        gpu = _by_index(found, variables, lists)
    elif name.upper().startswith("MIG-"):
        gpu = Gpu(name, "")
    elif name.upper().startswith("GPU-"):
        gpu = _by_uuid(found, lists, devices)
    else:
        raise NotSupportedError(
            f"{found.source} assigns GPU {sanitize(name)!r}: an index, GPU-… or MIG-… is expected"
        )
    uuid = gpu.uuid.partition("-")[2].replace("-", "").lower()
    real = [d for d in devices if not d.profile.is_software]
    same = [d for d in real if not gpu.mig and (
        d.profile.uuid == uuid or bool(gpu.pci) and d.profile.pci == gpu.pci
    )]
    usable = [d for d in same if d.unusable is None]
    if not usable:
        raise NotSupportedError(_absent(found, gpu, same, devices))
    profile = usable[0].profile
    unique = sum(d.profile.uuid == profile.uuid for d in devices) == 1
    return profile, f"uuid:{profile.uuid}" if unique else f"pci:{profile.pci}"


@dataclass
class _Lists:
    nvidia: Callable[[], list[Gpu]]
    amd: Callable[[], list[Gpu]]


def _by_index(found: Assigned, variables: Mapping[str, str], lists: _Lists) -> Gpu:
    index = int(found.names[0])
    nvidia = [] if found.order in ("hip", "rocr") else lists.nvidia()
    amd = lists.amd()
    if nvidia and amd:
        raise NotSupportedError(
            f"{found.source} assigns GPU {index}, and there are {len(nvidia)} of NVIDIA's and "
            f"{len(amd)} of AMD's: which is meant can't be known; assign UUIDs (GPU-…)"
        )
    listed = nvidia
    if amd:
        listed = amd
        mask = variables.get("ROCR_VISIBLE_DEVICES")
        if mask and found.order != "rocr":  # HIP counts what ROCr leaves
            words = [word.strip() for word in mask.split(",")]
            listed = [_by_uuid_or_place(word, amd) for word in words]
    elif found.order == "cuda" and len(nvidia) > 1:
        if variables.get(_ORDER) != "PCI_BUS_ID":
            raise NotSupportedError(
                f"{found.source} assigns GPU {index} of {len(nvidia)} in CUDA's own order, which "
                f"can't be known; set {_ORDER}=PCI_BUS_ID on the node and in all its workers, or "
                "assign UUIDs (CUDA_VISIBLE_DEVICES=GPU-…)"
            )
        listed = sorted(nvidia, key=lambda gpu: gpu.pci)
    if index >= len(listed):
        raise NotSupportedError(
            f"{found.source} assigns GPU {index}, and {len(listed)} GPUs of NVIDIA's or AMD's are "
            "found here (by NVML and the kernel's list): a container needs the driver's files"
        )
    return listed[index]


def _by_uuid_or_place(word: str, amd: Sequence[Gpu]) -> Gpu:
    chosen = [g for i, g in enumerate(amd) if word == str(i) or word.lower() == g.uuid.lower()]
    if len(chosen) != 1:
        raise NotSupportedError(
            f"ROCR_VISIBLE_DEVICES names GPU {sanitize(word)!r}, which is none of the {len(amd)} "
            "found here"
        )
    return chosen[0]


def _by_uuid(found: Assigned, lists: _Lists, devices: Sequence[Any]) -> Gpu:
    """The GPU of a UUID, or of the beginning of one, as CUDA accepts it."""
    digits = found.names[0][4:].replace("-", "").lower()
    if len(digits) == 32:
        return Gpu(found.names[0], "")
    known = [Gpu(f"GPU-{d.profile.uuid}", d.profile.pci) for d in devices]
    listed = {g.uuid: g for g in (*known, *lists.nvidia(), *lists.amd())}.values()
    begins = {
        g.uuid.replace("-", "").lower(): g for g in listed
        if g.uuid[4:].replace("-", "").lower().startswith(digits)
    }
    if len(begins) != 1:
        raise NotSupportedError(
            f"{found.source} assigns GPU {sanitize(found.names[0])}: {len(begins)} of the GPUs "
            "found here have a UUID that begins so"
        )
    return next(iter(begins.values()))


def _absent(found: Assigned, gpu: Gpu, same: Sequence[Any], devices: Sequence[Any]) -> str:
    what = f"{found.source} assigns GPU {sanitize(found.names[0])}"
    identity = ", ".join(part for part in (gpu.uuid, gpu.pci) if part)
    if same:
        profile = same[0].profile
        return f"{what} ({identity}): {profile.name} can't be used: {same[0].unusable}"
    there = "; ".join(
        f"{d.profile.name} (uuid {d.profile.uuid or 'unknown'}, pci {d.profile.pci or 'unknown'})"
        for d in devices
    )
    why = "a container needs the driver's Vulkan files (NVIDIA: NVIDIA_DRIVER_CAPABILITIES=all)"
    if gpu.mig or gpu.uuid.upper().startswith("MIG-"):
        why = "NVIDIA's driver has Vulkan for few kinds of MIG instances (those with graphics)"
    return (
        f"{what} ({identity}), which has no Vulkan device here; {why}. Found: {there or 'none'}. "
        "Nothing else is used in its place; device=\"vulkan\" or \"cpu\" asks for another"
    )


def _vulkan_devices() -> Sequence[Any]:
    try:
        return find_devices(driver=environment.text("WEBNN_VK_DRIVER") or "vulkan")
    except DriverError:  # no Vulkan at all
        return ()

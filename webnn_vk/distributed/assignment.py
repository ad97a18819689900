"""The device that an engine assigned to this worker.

No Vulkan driver reads ``CUDA_VISIBLE_DEVICES`` and its kin, and devices of one kind have one name.
So what the engine says is followed to a UUID or a PCI address, and from there to a Vulkan device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from webnn_vk.driver import DriverError
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.runtime.device_selection import find_devices
from webnn_vk.support import environment
from webnn_vk.support.errors import NotSupportedError, sanitize

from . import gpus
from .gpus import Gpu

CPU = "cpu"
#: How their indices count.
_MASKS = {"HIP_VISIBLE_DEVICES": "hip", "ROCR_VISIBLE_DEVICES": "rocr",
          "CUDA_VISIBLE_DEVICES": "cuda"}
_NONE = ("", "-1", "NoDevFiles")
_ORDER = "CUDA_DEVICE_ORDER"
_Lister = Callable[[], list[Gpu]]
_CONTAINER = "a container needs the driver's files"


@dataclass(frozen=True)
class Assigned:
    """An engine's assignment: GPUs by the engine's names, none for a worker on the CPU. ``source``
    names the place where it was found; ``order`` how indices count: "cuda", "nvml", "hip" or
    "rocr"; ``cores`` is the number of processor cores."""

    source: str
    names: tuple[str, ...]
    order: str = "cuda"
    cores: float | None = None


def assigned_device() -> str | None:
    """The device that the engine assigned to this process, for ``Settings(device=…)``:
    "uuid:…" or "pci:…", "cpu" for a worker without a GPU, None if nothing is assigned (outside of
    engines, without masks). A line on stderr says which, and why.

    In this order it follows ``WEBNN_VK_DEVICE``, the accelerator ids of a Ray worker, the GPU
    resource of a Spark task, and the masks ``HIP_VISIBLE_DEVICES``, ``ROCR_VISIBLE_DEVICES`` and
    ``CUDA_VISIBLE_DEVICES``. The first of several assigned GPUs is used. Waits for the drivers.

    NotSupportedError if the assigned GPU has no Vulkan device here, which is never replaced by
    another, or if an index counts in an order that can't be known: without
    ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` CUDA's order of several GPUs is CUDA's secret.
    """
    asked = environment.text("WEBNN_VK_DEVICE")
    if asked:
        _say(f"WEBNN_VK_DEVICE asks for {sanitize(asked)}")
        return asked
    variables = environment.of_engines()
    found = _from_engine(variables) or from_masks(variables)
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
    found = _from_engine(environment.of_engines())
    return None if found is None else max(1, int(found.cores or 0))


def _say(text: str) -> None:
    print(f"webnn_vk: {text}", file=sys.stderr, flush=True)


def _from_engine(variables: Mapping[str, str]) -> Assigned | None:
    """The GPUs that Ray or Spark assigned to this process; None outside of their workers."""
    ray, spark = sys.modules.get("ray"), sys.modules.get("pyspark")
    if ray is not None and ray.is_initialized():
        worker = ray.get_runtime_context()
        if worker.worker.mode == ray.WORKER_MODE:
            ids = tuple(map(str, worker.get_accelerator_ids().get("GPU", ())))
            amd = "HIP_VISIBLE_DEVICES" in variables and "CUDA_VISIBLE_DEVICES" not in variables
            cores = worker.get_assigned_resources().get("CPU", 1)
            return Assigned("Ray", ids, "hip" if amd else "cuda", cores)
    task = None if spark is None else spark.TaskContext.get()
    if task is None:
        return None
    # Spark's own script for finding GPUs writes the indices of nvidia-smi.
    resource = task.resources().get("gpu")
    return Assigned("Spark", tuple(resource.addresses) if resource else (), "nvml", task.cpus())


def from_masks(variables: Mapping[str, str]) -> Assigned | None:
    """What the masks of CUDA and ROCm leave visible; None if none is set."""
    given = {name: variables[name] for name in _MASKS if name in variables}
    if not given:
        return None
    name, text = next(iter(given.items()))
    # As CUDA reads it: what comes after such a word is invisible.
    words = (word.strip() for word in text.split(","))
    names = tuple(takewhile(lambda word: word not in _NONE, words))
    cuda = given.get("CUDA_VISIBLE_DEVICES", text)
    if names and cuda not in (*_NONE, text):
        raise NotSupportedError(
            f"{name}={sanitize(text)} and CUDA_VISIBLE_DEVICES={sanitize(cuda)} assign different "
            "GPUs; set one of them, or WEBNN_VK_DEVICE=uuid:…"
        )
    return Assigned(f"{name}={sanitize(text)}", names, _MASKS[name])


def resolve(
    found: Assigned, variables: Mapping[str, str], devices: Sequence[Any],
    nvidia: _Lister = gpus.nvidia_gpus, amd: _Lister = gpus.amd_gpus,
) -> tuple[DeviceProfile, str]:
    """The Vulkan device of the first assigned GPU, and its name for ``Settings``. ``devices``: as
    ``find_devices`` gives them; ``nvidia`` and ``amd`` list the makers' GPUs. NotSupportedError as
    ``assigned_device``."""
    name = found.names[0]
    kind = name[:4].upper()
    if name.isdecimal():
        gpu = _picked(found.source, name, _in_order(found, variables, nvidia, amd))
    elif kind == "MIG-" or kind == "GPU-" and len(_digits(name)) == 32:
        gpu = Gpu(name, "")
    elif kind == "GPU-":
        known = [Gpu(f"GPU-{d.profile.uuid}", d.profile.pci) for d in devices]
        gpu = _picked(found.source, name, (*known, *nvidia(), *amd()))
    else:
        raise NotSupportedError(
            f"{found.source} assigns GPU {sanitize(name)!r}: an index, GPU-… or MIG-… is expected"
        )
    uuid = _digits(gpu.uuid)
    same = [d for d in devices if not gpu.mig and not d.profile.is_software and (
        d.profile.uuid == uuid or bool(gpu.pci) and d.profile.pci == gpu.pci
    )]
    usable = [d for d in same if d.unusable is None]
    if not usable:
        raise NotSupportedError(_absent(found, gpu, same, devices))
    profile = usable[0].profile
    unique = sum(d.profile.uuid == profile.uuid for d in devices) == 1
    return profile, f"uuid:{profile.uuid}" if unique else f"pci:{profile.pci}"


def _digits(uuid: str) -> str:
    return uuid.partition("-")[2].replace("-", "").lower()


def _in_order(
    found: Assigned, variables: Mapping[str, str], nvidia: _Lister, amd: _Lister
) -> Sequence[Gpu]:
    """The GPUs in the order in which the assigned index counts."""
    of_nvidia = [] if found.order in ("hip", "rocr") else nvidia()
    of_amd = amd()
    if of_nvidia and of_amd:
        raise NotSupportedError(
            f"{found.source} assigns GPU {found.names[0]}, and there are {len(of_nvidia)} of "
            f"NVIDIA's and {len(of_amd)} of AMD's: which is meant can't be known; assign UUIDs "
            "(GPU-…)"
        )
    mask = variables.get("ROCR_VISIBLE_DEVICES")
    if of_amd and mask and found.order != "rocr":  # HIP counts what ROCr leaves
        return [_picked("ROCR_VISIBLE_DEVICES", word.strip(), of_amd) for word in mask.split(",")]
    if found.order == "cuda" and len(of_nvidia) > 1:
        if variables.get(_ORDER) != "PCI_BUS_ID":
            raise NotSupportedError(
                f"{found.source} assigns GPU {found.names[0]} of {len(of_nvidia)} in CUDA's own "
                f"order, which can't be known; set {_ORDER}=PCI_BUS_ID on the node and in all its "
                "workers, or assign UUIDs (CUDA_VISIBLE_DEVICES=GPU-…)"
            )
        of_nvidia.sort(key=lambda gpu: gpu.pci)
    return of_nvidia or of_amd


def _picked(source: str, word: str, listed: Sequence[Gpu]) -> Gpu:
    """A GPU of a list by its place, its UUID or the beginning of one, as CUDA accepts it."""
    if word.isdecimal():
        chosen = [*listed[int(word) :][:1]]
    else:  # Vulkan lists some of them, too
        by_uuid = {_digits(gpu.uuid): gpu for gpu in listed}
        chosen = [g for digits, g in by_uuid.items() if digits.startswith(_digits(word))]
    if len(chosen) != 1:
        raise NotSupportedError(
            f"{source} assigns GPU {sanitize(word)}, which names {len(chosen) or 'none'} of the "
            f"GPUs found here: {', '.join(gpu.uuid for gpu in listed) or 'none'}; {_CONTAINER}"
        )
    return chosen[0]


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
    of_mig = gpu.mig or gpu.uuid.upper().startswith("MIG-")
    why = ("NVIDIA's driver has Vulkan for few kinds of MIG instances (those with graphics)"
           if of_mig else f"{_CONTAINER} for Vulkan (NVIDIA: NVIDIA_DRIVER_CAPABILITIES=all)")
    return (
        f"{what} ({identity}), which has no Vulkan device here; {why}. Found: {there or 'none'}. "
        "Nothing else is used in its place; device=\"vulkan\" or \"cpu\" asks for another"
    )


def _vulkan_devices() -> Sequence[Any]:
    try:
        return find_devices(driver=environment.text("WEBNN_VK_DRIVER") or "vulkan")
    except DriverError:  # no Vulkan at all
        return ()

"""GPUs as their makers' libraries list them, for the indices and UUIDs in the engines' masks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webnn_vk.driver.device_profile import plain_pci
from webnn_vk.runtime.device_selection import find_devices
from webnn_vk.support import environment
from webnn_vk.support.errors import NotSupportedError

#: The kernel's list of AMD's GPUs and processors, in the order of ROCm.
KFD = Path("/sys/class/kfd/kfd/topology/nodes")


@dataclass(frozen=True)
class Gpu:
    """A GPU: ``uuid`` as in masks ("GPU-…"), ``pci`` as in device profiles; ``mig``: it is cut into
    MIG instances."""

    uuid: str
    pci: str
    mig: bool = False


def nvidia_gpus() -> list[Gpu]:
    """NVIDIA's GPUs in the order of NVML and nvidia-smi; none without NVIDIA's driver.
    NotSupportedError if the package for asking NVML is missing, or NVML fails."""
    if environment.text("WEBNN_VK_DRIVER") == "null":
        return [Gpu(f"GPU-{one.profile.uuid}", one.profile.pci)
                for one in find_devices(driver="null") if one.profile.driver_name == "null"]
    try:
        import pynvml
    except ImportError:
        if not Path("/dev/nvidiactl").exists():
            return []
        raise NotSupportedError(
            "an index of NVIDIA's GPUs is looked up with NVML: pip install nvidia-ml-py"
        ) from None
    try:
        pynvml.nvmlInit()
        try:
            return [_nvidia_gpu(pynvml, i) for i in range(pynvml.nvmlDeviceGetCount())]
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError_LibraryNotFound:
        return []
    except pynvml.NVMLError as error:
        raise NotSupportedError(f"NVML can't list NVIDIA's GPUs: {error}") from None


def _nvidia_gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    try:
        mig = nvml.nvmlDeviceGetMigMode(handle)[0] == 1
    except nvml.NVMLError:  # a GPU without MIG
        mig = False
    pci = plain_pci(nvml.nvmlDeviceGetPciInfo(handle).busId)
    return Gpu(nvml.nvmlDeviceGetUUID(handle), pci, mig)


def amd_gpus(folder: Path | None = None) -> list[Gpu]:
    """AMD's GPUs in the order of ROCm, as the kernel lists them; none without its driver."""
    nodes = [path for path in (folder or KFD).glob("*") if path.name.isdecimal()]
    found = []
    for node in sorted(nodes, key=lambda path: int(path.name)):
        try:
            lines = (node / "properties").read_text().splitlines()
        except OSError:  # of a GPU that this container may not use: ROCm leaves it out, too
            continue
        facts = {name: int(number) for name, number in (line.split() for line in lines)}
        if facts.get("simd_count", 0):
            place, domain = facts["location_id"], facts.get("domain", 0)
            pci = f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
            found.append(Gpu(f"GPU-{facts.get('unique_id', 0):016x}", pci))
    return found

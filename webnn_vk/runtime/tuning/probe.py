"""The kind of CPU that a software device runs on: whether loads from storage buffers, which
llvmpipe turns into gathers, take several times as long as texels.

One small product is measured both ways when a device is tuned for the first time, and the answer is
stored beside the tuned schedules. Rules and cost model read it as ``DeviceProfile.slow_gathers``.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from webnn_vk.codegen.files import read_regular, write_atomically
from webnn_vk.codegen.store import ShaderUnavailable
from webnn_vk.compiler.ir import Emitter, Value
from webnn_vk.compiler.kernels import KernelNode, Schedule, family_of
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.warnings import say_once

from ..driver_memory import DriverMemory
from .store import identity
from .workbench import Workbench

#: The side of the product that is measured: 2 million multiply-adds.
_SIDE = 128
_TILE = (("LX", 8), ("LY", 1), ("TM", 8), ("TN", 8))
_ROUNDS = 3
#: Gathers count as slow if the same tiles take this many times as long from storage buffers.
#: Measured: 10 on an EPYC. Reported, not measured by this probe: 3.7 on a Cascade Lake, and 1.0 to
#: 1.8 on CPUs with fast gathers.
SLOW = 3.0


@dataclass(frozen=True)
class Loads:
    """Seconds of the product by storage buffers and by texels."""

    storage: float
    texel: float

    @property
    def slow_gathers(self) -> bool:
        return self.storage > SLOW * self.texel


def known_profile(profile: DeviceProfile, folder: Path | None) -> DeviceProfile:
    """The profile with earlier findings about the processor of a software device."""
    if not profile.is_software or folder is None:
        return profile
    slow = _remembered(_path(folder, profile))
    return profile if slow is None else profile.replace(slow_gathers=slow)


def probed_profile(device: DriverMemory, folder: Path | None) -> DeviceProfile:
    """The same, measured now if it isn't known. Stored in the folder, if there is one."""
    profile = device.profile
    if not profile.is_software or "texel_buffers" not in profile.features:
        return profile
    path = None if folder is None else _path(folder, profile)
    slow = None if path is None else _remembered(path)
    if slow is None:
        try:
            loads = probe(device)
        except (MemoryError, ShaderUnavailable) as error:
            say_once(f"how fast {profile.name} loads can't be measured: {error}")
            return profile
        slow = loads.slow_gathers
        if path is not None:
            _remember(path, loads)
    return profile.replace(slow_gathers=slow)


def probe(device: DriverMemory) -> Loads:
    """Measure a product by both ways of loading."""
    emit = Emitter()
    operand = MLOperandDescriptor("float32", (_SIDE, _SIDE))
    emit.matmul(Value(operand, name="a"), Value(operand, name="b"))
    node = KernelNode.of(emit.nodes[-1])
    family = family_of(node)
    bench = Workbench(device, node, _SIDE)
    try:
        trials = [
            bench.trial(family.lower(
                node, family.problem(node), Schedule("matmul", _TILE, load), device.profile
            ))
            for load in ("storage", "texel")
        ]
        for _ in range(_ROUNDS):
            for trial in trials:
                bench.measure(trial)
        storage, texel = (min(trial.seconds) for trial in trials)
        for trial in trials:
            bench.done(trial)
        return Loads(storage, texel)
    finally:
        bench.close()


def _path(folder: Path, profile: DeviceProfile) -> Path:
    name = hashlib.sha256(identity(profile).encode()).hexdigest()[:40]
    return folder / f"{name}.probe"


def _remembered(path: Path) -> bool | None:
    try:
        found = json.loads(read_regular(path, 4096))["slow_gathers"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        say_once(f"what is remembered of the processor is ignored: {path}: {error}")
        return None
    return found if isinstance(found, bool) else None


def _remember(path: Path, loads: Loads) -> None:
    text = json.dumps({
        "slow_gathers": loads.slow_gathers, "storage_seconds": loads.storage,
        "texel_seconds": loads.texel,
    }, indent=1)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, text.encode(), mode=0o600)
    except OSError as error:
        say_once(f"what was found out about the processor can't be kept: {error}")

"""Self-tests on a device: small programs with known results, run once before graphs rely on their
kernels, on the thread that builds. One that passed is not repeated by later processes, until the
driver, the features in use or the templates change."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from webnn_vk.codegen.glsl import GlslError
from webnn_vk.codegen.store import ShaderUnavailable
from webnn_vk.codegen.template_files import fingerprint
from webnn_vk.compiler.program import Program
from webnn_vk.driver import DriverError
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support import forks
from webnn_vk.support.integers import padded

from .driver_memory import DriverMemory
from .executable import NOT_OF_KERNELS, DriverExecutable
from .storage import KernelsRefused, Miscompiles, Storage

if TYPE_CHECKING:
    from webnn_vk.compiler.program.self_test_programs import SelfTest, Tiling


class Trials:
    """The self-tests that a device has run, and their outcomes. ``seconds``: the time they took."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._outcomes: dict[Tiling, str] = {}

    def require(self, device: DriverMemory, program: Program) -> None:
        """See ``device.Device.try_out``."""
        with forks.undisturbed():
            from webnn_vk.compiler.program.self_test_programs import self_test_keys, self_tests

        keys, cache = self_test_keys(program), device.shaders.cache
        marks = {key: _mark(key, device.profile) for key in keys - self._outcomes.keys()}
        self._outcomes |= {key: "" for key, mark in marks.items() if cache.has_passed(mark)}
        for trial in self_tests(keys - self._outcomes.keys(), device.profile):
            start = time.perf_counter()
            self._outcomes[trial.key] = found = outcome(device, trial)
            self.seconds += time.perf_counter() - start
            if not found:
                cache.keep_passed(marks[trial.key])
        for key in keys:
            if self._outcomes[key]:
                raise Miscompiles(self._outcomes[key], key.feature)


def _mark(key: Tiling, profile: DeviceProfile) -> bytes:
    """The key of a self-test on a device in the user's cache."""
    about = (
        profile.name, profile.vendor_id, profile.device_id, profile.uuid, profile.driver_name,
        profile.driver_version, sorted(profile.features), fingerprint(), key,
    )
    return hashlib.sha256(repr(about).encode()).digest()


def outcome(device: DriverMemory, trial: SelfTest) -> str:
    """The error in the device's result of a self-test; "" if it is correct."""
    try:
        result = _result(device, trial)
    except NOT_OF_KERNELS:
        raise
    except (DriverError, GlslError, KernelsRefused, ShaderUnavailable) as error:
        return f"a trial of them failed: {error}"
    wrong = int(np.count_nonzero(result != trial.expected))
    return f"{wrong} of {result.size} elements of a small product are wrong" if wrong else ""


def _result(device: DriverMemory, trial: SelfTest) -> np.ndarray:
    executable = DriverExecutable(device, trial.program, trial.constants)
    held = {name: _storage(device, data) for name, data in trial.inputs.items()}
    # The initial contents differ from the expected result, in case the device doesn't write.
    out = _storage(device, np.full_like(trial.expected, np.nan))
    recordings: list[Any] = executable.recordings(held, {"out": out})
    device.wait_value(device.driver.submit(recordings))
    raw = out.backing.read()[: trial.expected.nbytes]
    return raw.copy().view(trial.expected.dtype).reshape(trial.expected.shape)


def _storage(device: DriverMemory, data: np.ndarray) -> Storage:
    storage = device.adopt(data.nbytes, device.find(padded(data.nbytes), host=True, label="trial"))
    storage.backing.write(data.reshape(-1).view(np.uint8))
    return storage

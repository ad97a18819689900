"""Small programs with known results, for kernels that drivers may compute wrongly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

from ..kernels.coopmat_trial import Tiling, tiling_of, trial
from .assemble import assemble
from .constants import Constants
from .program import Program


@dataclass(frozen=True, eq=False)
class SelfTest:
    """``program``, run on ``inputs`` by name, has to write exactly ``expected`` to its output
    "out". Tests with equal keys are the same."""

    key: Tiling
    program: Program
    constants: Constants
    inputs: Mapping[str, np.ndarray]
    expected: np.ndarray


def self_test_keys(program: Program) -> set[Tiling]:
    """The keys of the self-tests for the kernels of a program."""
    found = {tiling_of(step.kernel, step.spec, step.constants) for step in program.dispatches}
    return {tiling for tiling in found if tiling is not None}


def self_tests(keys: set[Tiling], profile: DeviceProfile) -> Iterator[SelfTest]:
    """The self-tests with these keys on a device."""
    for key in sorted(keys, key=str):
        graph, inputs, expected = trial(key, profile)
        program, constants = assemble(graph, profile)
        yield SelfTest(key, program, constants, inputs, expected)

"""Schedules that no measurement chose: in place of the tuner's, which picks by time and so at
random, each of the legal ones in turn. They reach the compiler by the tuner's own way, through the
store of tuned schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support import newer_mesa
from webnn_vk.compiler.kernels import KernelNode, Schedule, solver_of
from webnn_vk.compiler.kernels.schedule import problem_class
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.runtime.tuning.store import Entry, TunedStore
from webnn_vk.runtime.tuning.tuner import Tuner


@dataclass
class Forced:
    """Stands in for the tuner: of each problem's candidates, as the tuner has them, the one
    that ``pick`` gives the index of is put into the store, for its constants packed too. With
    a ``kernel``, only its candidates count.

    ``most``: how many candidates the problem with most of them had in the graph built last;
    ``counts``: how often each kernel was forced, by (family, kernel, way of loading).
    """

    pick: Callable[[int], int] = lambda count: 0
    kernel: str = ""
    most: int = 1
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def __call__(
        self, nodes: Iterable[KernelNode], device: Any, store: TunedStore
    ) -> None:
        profile = device.profile
        self.most = 1
        for node in nodes:
            solver, problem = solver_of(node)
            candidates = [
                c for c in solver.candidates(problem, profile)
                if self.kernel in ("", c.kernel)
            ]
            if len(candidates) < (1 if self.kernel else 2):
                continue
            self.most = max(self.most, len(candidates))
            schedule: Schedule = candidates[self.pick(len(candidates))]
            key = solver.name, problem_class(problem)
            store.put(Entry(*key, schedule, 0.0, 0.0, "forced"))
            self.counts[key[0], schedule.kernel, schedule.load] += 1


def forced(monkeypatch: pytest.MonkeyPatch) -> Forced:
    """In place of the tuner, for contexts that tune, until the test ends."""
    made = Forced()
    monkeypatch.setattr(
        Tuner, "__call__", lambda self, nodes, available: made(nodes, self.device, self.store)
    )
    return made


def pretended_gpu(profile: DeviceProfile) -> dict[str, Any]:
    """The fields that make a GPU with cooperative matrices of a device with this profile: passes
    and rules are a GPU's. The device's own matrices are used, if it has any, else emulated ones."""
    from tests.support.matrices import SHAPES, shape

    gpu = {"device_type": "discrete", "vendor_id": 0x10DE}
    if "cooperative_matrix" in profile.features:
        return gpu
    assert not newer_mesa.runs_this(), f"{profile.name} lists no cooperative matrices"
    sizes, subgroup = SHAPES["8x8x16, subgroups of 8"]
    return gpu | {
        "subgroup_size": subgroup if profile.is_software else profile.subgroup_size,
        "cooperative_matrices": (shape(*sizes), shape(8, 8, 8, "float32")),
    }

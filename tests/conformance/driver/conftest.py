"""Drivers that have to implement the interface."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.drivers import require_vulkan
from tests.support.glsl import SCALE, compiled
from tests.support.kompute import require_kompute
from webnn_vk.driver import Driver, Pipeline, PipelineRequest
from webnn_vk.runtime.device_selection import NullDevice, choose, open_device
from webnn_vk.support.settings import Settings


def open_named(name: str) -> Driver:
    """A new driver of that name, on the device that the tests use."""
    if name == "null":
        return open_device(NullDevice(), Settings(driver="null")).driver
    if name == "vulkan":
        require_vulkan()
    else:
        require_kompute()
    chosen = Settings.from_environment()
    found: Any = choose(replace(chosen, device=chosen.device or "vulkan", driver="vulkan")).found
    if name == "kompute with twins":
        from webnn_vk.driver.kompute.driver import open_driver

        return open_driver(found.profile.replace(device_type="discrete"), found.index)
    return open_device(found, Settings(driver=name)).driver


#: Kompute also as on a GPU, where tensors have staging copies.
NAMES = [
    "vulkan", *(pytest.param(name, marks=pytest.mark.device)
                for name in ("kompute", "kompute with twins")), "null",
]


@pytest.fixture(scope="session", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def session_drivers() -> Iterator[dict[str, Driver]]:
    opened: dict[str, Driver] = {}
    yield opened
    for driver in opened.values():
        driver.close()


@pytest.fixture
def driver(name: str, session_drivers: dict[str, Driver]) -> Driver:
    """One driver of each kind for the session: don't close it."""
    if name not in session_drivers:
        session_drivers[name] = open_named(name)
    return session_drivers[name]


@pytest.fixture
def own_driver(name: str) -> Iterator[Driver]:
    """A separate driver for the test."""
    driver = open_named(name)
    yield driver
    driver.close()


@pytest.fixture
def computes(name: str) -> bool:
    """Whether dispatches compute anything."""
    return name != "null"


@pytest.fixture(scope="session")
def spirv(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """`SCALE` compiled."""
    return compiled(SCALE, tmp_path_factory.mktemp("spirv"))


@pytest.fixture
def request_for(spirv: bytes) -> Callable[..., PipelineRequest]:
    """The request of `SCALE` for a factor K."""

    def make(factor: int = 1, **changes: Any) -> PipelineRequest:
        constants = ((0, struct.pack("<I", 64)), (1, struct.pack("<I", factor)))
        given = {"binding_count": 2, "push_size": 8, "constants": constants, "name": "scale"}
        return PipelineRequest(**{"spirv": spirv, **given, **changes})

    return make


@pytest.fixture
def pipeline(request_for: Callable[..., PipelineRequest]) -> Callable[..., Pipeline]:
    """Makes the pipeline of `SCALE` for a driver and a factor K."""
    return lambda driver, factor=1: driver.pipelines([request_for(factor)])[0]

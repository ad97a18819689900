"""Which device compiles which pipeline, with drivers that only record their submits."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.profiles import stored_profile
from webnn_vk.driver import DispatchCommand, DriverError, OutOfDeviceMemory
from webnn_vk.driver.vulkan import precompilation
from webnn_vk.driver.vulkan.precompilation import CACHED_SECONDS, Precompilation

SIZES = {"small": 4, "large": 400, "middle": 40, "tiny": 1, "huge": 4000}
PIPELINES = [
    SimpleNamespace(
        request=SimpleNamespace(spirv=b"x" * size, name=name, binding_count=2, push_size=4)
    )
    for name, size in SIZES.items()
]


@dataclass
class Recorder:
    """A driver that has ``cached`` pipelines, and whose wait fails with ``error`` after ``many``
    submits."""

    cached: set[str] = field(default_factory=set)
    error: Exception | None = None
    many: int = 0
    submits: list[list[str]] = field(default_factory=list)
    waited: list[int] = field(default_factory=list)
    closed: bool = False
    profile: Any = field(default_factory=lambda: stored_profile("llvmpipe"))

    def allocate(self, size: int, *, label: str) -> str:
        return label

    def pipelines(self, requests: list[Any]) -> list[Any]:
        return [SimpleNamespace(request=request) for request in requests]

    def record(self, commands: list[Any]) -> list[Any]:
        return commands

    def submit(self, recordings: list[list[Any]]) -> int:
        dispatches = [c for r in recordings for c in r if isinstance(c, DispatchCommand)]
        assert all(d.groups == (0, 0, 0) and len(d.bindings) == 2 for d in dispatches)
        self.submits.append([d.pipeline.request.name for d in dispatches])
        return len(self.submits)

    def wait(self, value: int, timeout: float | None = None) -> bool:
        if self.error is not None and len(self.submits) > self.many:
            raise self.error
        if timeout is None:
            self.waited.append(value)
            return True
        assert timeout >= CACHED_SECONDS
        return self.cached.issuperset(self.submits[value - 1])

    def submitted(self) -> int:
        return len(self.submits)

    def completed(self) -> int:
        return len(self.submits)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompilation, "cores", lambda: 2)


@pytest.fixture
def others_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other devices take all that is left before this one goes on."""
    monkeypatch.setattr(
        precompilation, "spread", lambda call, works, count: [call(w) for w in works[::-1]]
    )


def run(driver: Recorder, *helpers: Recorder) -> Precompilation:
    """Compiles ``PIPELINES``, with these further devices in turn."""
    left = [*helpers]
    ahead = Precompilation(lambda: left.pop(0))
    assert ahead.run(driver, PIPELINES) == len(driver.submits)
    return ahead


ALONE = [["huge"], ["large"], ["middle"], ["small"], ["tiny"]]
TOGETHER = [["huge", "large", "middle", "small", "tiny"]]


def test_cached_pipelines_need_no_other_device() -> None:
    driver = Recorder(cached=set(SIZES))
    run(driver)
    assert driver.submits == ALONE


@pytest.mark.usefixtures("others_first")
def test_others_share_what_is_not_cached() -> None:
    driver, helper = Recorder(cached={"huge", "large"}), Recorder()
    run(driver, helper)
    assert helper.submits == [["small"], ["tiny"]] and helper.waited == [1, 2] and helper.closed
    # In the end this device has all; it waits for its own.
    assert driver.submits == [["huge"], ["large"], ["middle"], ["small"], ["tiny"]]
    assert driver.waited == [3]


def test_every_pipeline_runs_here_once() -> None:
    for _ in range(50):
        driver, helper = Recorder(), Recorder()
        run(driver, helper)
        ours = [name for submit in driver.submits for name in submit]
        assert sorted(ours) == sorted(SIZES) and helper.closed
        assert {name for submit in helper.submits for name in submit} <= {*SIZES} - {"huge"}


def test_as_many_devices_as_cores_and_pipelines(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    monkeypatch.setattr(
        precompilation, "spread", lambda call, works, count: counts.append((len(works), count))
    )
    for cores in (1, 2, 3, 64):
        monkeypatch.setattr(precompilation, "cores", lambda cores=cores: cores)
        run(Recorder())
        Precompilation(Recorder).run(Recorder(), PIPELINES[:2])
    assert counts == [(1, 1), (1, 1), (2, 2), (2, 2), (3, 3), (2, 2), (4, 4), (2, 2)]


@pytest.mark.usefixtures("others_first")
@pytest.mark.parametrize("error", [OutOfDeviceMemory("none left"), MemoryError()])
@pytest.mark.parametrize("many", [0, 1])
def test_a_failing_device_is_left_out(many: int, error: Exception) -> None:
    driver = Recorder()
    helper = Recorder(error=error, many=many)
    run(driver, helper)
    assert len(helper.submits) == many + 1 and helper.closed
    assert sorted(name for submit in driver.submits for name in submit) == sorted(SIZES)


def test_a_device_that_cannot_be_opened_is_left_out() -> None:
    def none() -> Any:
        raise OutOfDeviceMemory("none left")
    driver = Recorder()
    Precompilation(none).run(driver, PIPELINES)
    assert driver.submits == ALONE


def test_an_error_of_this_device_is_raised() -> None:
    driver, helper = Recorder(error=DriverError("lost"), many=1), Recorder()
    with pytest.raises(DriverError, match="lost"):
        Precompilation(lambda: helper).run(driver, PIPELINES)
    assert helper.closed or not helper.submits


@pytest.mark.usefixtures("others_first")
def test_no_other_device_where_the_drivers_cache_is_off() -> None:
    """There this device finds nothing of what another one has compiled."""
    off = Recorder()
    ahead = run(off, Recorder())
    assert off.submits == [["huge"], ["large"], ["middle", "small", "tiny"]]
    again = Recorder()
    ahead.run(again, PIPELINES)
    assert again.submits == TOGETHER
    on, helpers = Recorder(cached={"large"}), [Recorder(), Recorder()]
    ahead = run(on, *helpers)
    ahead.run(Recorder(), PIPELINES)
    assert all(helper.closed for helper in helpers)


class Busy(Recorder):
    """A driver whose queue has another build's work in front of what it is given."""

    def completed(self) -> int:
        return len(self.submits) - 1


class Interleaved(Recorder):
    """A driver to which another build submits in between."""

    def submit(self, recordings: list[list[Any]]) -> int:
        self.submits.append([])
        return super().submit(recordings)


@pytest.mark.usefixtures("others_first")
@pytest.mark.parametrize("kind", [Busy, Interleaved])
def test_a_busy_queue_does_not_say_that_the_cache_is_off(kind: type[Recorder]) -> None:
    ahead = run(kind(), Recorder(), helper := Recorder())
    ahead.run(Recorder(), PIPELINES)
    assert helper.submits and helper.closed


@pytest.mark.usefixtures("others_first")
def test_another_build_finds_meanwhile_that_the_drivers_cache_is_off() -> None:
    helpers = [Recorder(), Recorder()]
    ahead, off = Precompilation(helpers.pop), Recorder()

    class Waiting(Recorder):
        def wait(self, value: int, timeout: float | None = None) -> bool:
            if not off.submits:
                ahead.run(off, PIPELINES)
            return super().wait(value, timeout)

    driver = Waiting()
    assert ahead.run(driver, PIPELINES) == len(driver.submits)
    for each in (driver, off):
        assert sorted(name for submit in each.submits for name in submit) == sorted(SIZES)
    assert not helpers


def test_no_other_device_under_the_validation_layer() -> None:
    driver = Recorder()
    Precompilation(None).run(driver, PIPELINES)
    assert driver.submits == TOGETHER

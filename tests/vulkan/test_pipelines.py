"""The pipeline store: duplicates, failures, interruption."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable

import pytest

from webnn_vk.vulkan import pipelines
from webnn_vk.vulkan.device import VulkanDriver
from webnn_vk.vulkan.driver import PipelineRequest
from webnn_vk.vulkan.errors import VulkanError


@pytest.fixture
def request_for(spirv: bytes) -> Callable[[int], PipelineRequest]:
    return lambda factor: PipelineRequest(
        spirv, 2, 8, ((0, struct.pack("<I", 64)), (1, struct.pack("<I", factor))), f"x{factor}")


def counting(monkeypatch: pytest.MonkeyPatch,
             action: Callable[[int], None] = lambda count: None) -> list[str]:
    """Counts the pipelines created; `action` runs before each with its number (from 1)."""
    created: list[str] = []
    original = pipelines.PipelineStore._create

    def create(store: object, request: PipelineRequest) -> object:
        created.append(request.name)
        action(len(created))
        return original(store, request)
    monkeypatch.setattr(pipelines.PipelineStore, "_create", create)
    return created


def test_duplicates_are_made_once(own_driver: VulkanDriver, monkeypatch: pytest.MonkeyPatch,
                                  request_for: Callable[[int], PipelineRequest]) -> None:
    created = counting(monkeypatch)
    made = own_driver.pipelines([request_for(factor) for factor in (1, 2, 1, 3, 2)])
    assert [pipeline.request.name for pipeline in made] == ["x1", "x2", "x1", "x3", "x2"]
    assert made[0] is made[2] and made[1] is made[4]
    assert sorted(created) == ["x1", "x2", "x3"]
    assert own_driver.pipelines([request_for(2)]) == [made[1]]
    assert len(created) == 3


def test_duplicates_between_threads(own_driver: VulkanDriver, monkeypatch: pytest.MonkeyPatch,
                                    request_for: Callable[[int], PipelineRequest]) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold(count: int) -> None:
        begun.set()
        assert go_on.wait(60)
    created = counting(monkeypatch, hold)
    results: list[object] = []
    threads = [threading.Thread(
        target=lambda: results.extend(own_driver.pipelines([request_for(5)]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait(60)
    go_on.set()
    for thread in threads:
        thread.join()
    assert created == ["x5"]
    assert len(results) == 4 and len(set(map(id, results))) == 1


def test_a_failure_is_not_remembered(own_driver: VulkanDriver, monkeypatch: pytest.MonkeyPatch,
                                     request_for: Callable[[int], PipelineRequest]) -> None:
    def fail(count: int) -> None:
        if count == 1:
            raise VulkanError("no room")
    counting(monkeypatch, fail)
    with pytest.raises(VulkanError, match="no room"):
        own_driver.pipelines([request_for(1)])
    assert own_driver.pipelines([request_for(1)])[0].request.name == "x1"


def test_ctrl_c_leaves_nothing_to_wait_for(own_driver: VulkanDriver,
                                           monkeypatch: pytest.MonkeyPatch,
                                           request_for: Callable[[int], PipelineRequest]) -> None:
    class Interrupted:
        """Workers that are interrupted before they begin."""

        def map(self, *arguments: object) -> None:
            raise KeyboardInterrupt

        def shutdown(self) -> None:
            pass

    monkeypatch.setattr(own_driver._pipelines, "_executor", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        own_driver.pipelines([request_for(1), request_for(2)])
    monkeypatch.undo()
    assert len(own_driver.pipelines([request_for(1), request_for(2)])) == 2


def test_required_subgroup_size(own_driver: VulkanDriver, spirv: bytes) -> None:
    if "subgroup_size_control" not in own_driver.profile.features:
        pytest.skip("the device can't fix the subgroup size")
    size = own_driver.profile.subgroup_size
    pipeline = own_driver.pipeline(spirv, binding_count=2, push_size=8, subgroup_size=size)
    assert pipeline.request.subgroup_size == size
    assert own_driver.pipeline(spirv, binding_count=2, push_size=8) is not pipeline
    for wrong in (3, 2 * own_driver.profile.max_subgroup_size):
        with pytest.raises(ValueError, match=f"subgroups of {wrong}"):
            own_driver.pipeline(spirv, binding_count=2, push_size=8, subgroup_size=wrong)

"""Adapters and opening devices."""

from __future__ import annotations

from typing import Any

import pytest

import webnn_vk
from webnn_vk import NotSupportedError, Settings, gpu


def test_the_package_is_loaded_on_use() -> None:
    assert webnn_vk.gpu is gpu


def test_enumerate(adapter: Any) -> None:
    adapters = gpu.enumerate_adapters()
    assert [found.info.index for found in adapters] == sorted(f.info.index for f in adapters)
    assert adapter.info in [found.info for found in adapters]
    assert all(found.info.unusable is None for found in adapters)


def test_limits(adapter: Any) -> None:
    limits, profile = adapter.limits, adapter._physical.profile
    assert limits["max_compute_invocations_per_workgroup"] == profile.max_workgroup_invocations
    assert limits["max_storage_buffer_binding_size"] >= 128 << 20 or profile.device_type != "cpu"
    assert limits["max_buffer_size"] == profile.max_tensor_byte_length
    assert limits["max_compute_workgroup_size_x"] == profile.max_workgroup_size[0]
    assert "timeline_semaphore" in adapter.features


def test_request_adapter(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for preference in ("low-power", "high-performance"):
        assert gpu.request_adapter(power_preference=preference).result(60).info.is_vulkan
    with pytest.raises(TypeError, match="low-power, high-performance"):
        gpu.request_adapter(power_preference="default").result(60)
    monkeypatch.setenv("WEBNN_VK_DEVICE", adapter.info.name[:6])
    assert gpu.request_adapter().result(60).info.name == adapter.info.name
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")  # of contexts: there is no CPU adapter
    assert gpu.request_adapter().result(60).info.is_vulkan
    monkeypatch.setenv("WEBNN_VK_DEVICE", "no such device")
    with pytest.raises(NotSupportedError, match="no such device"):
        gpu.request_adapter().result(60)


def test_without_vulkan(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from webnn_vk.driver.vulkan.errors import VulkanUnavailable
    from webnn_vk.gpu import adapter as module

    def none(validate: bool) -> Any:
        raise VulkanUnavailable("no loader")

    monkeypatch.setattr(module, "find_devices", none)
    assert gpu.enumerate_adapters() == []
    with pytest.raises(NotSupportedError, match="no loader"):
        gpu.request_adapter().result(60)


def test_settings(adapter: Any) -> None:
    masked = adapter.request_device(settings=Settings(mask=("int64",))).result(60)
    assert "int64" not in masked.features
    masked.destroy()
    with pytest.raises(TypeError, match="no such feature|nonsense"):
        adapter.request_device(settings=Settings(mask=("nonsense",))).result(60)

"""GPU devices for tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.drivers import require_vulkan
from tests.support.gpu_shaders import needs_compiler


@pytest.fixture(scope="session")
def adapter() -> Any:
    """The Vulkan device that the tests run on."""
    require_vulkan()
    from webnn_vk import gpu

    return gpu.request_adapter().result()


@pytest.fixture(scope="session")
def device(adapter: Any) -> Iterator[Any]:
    """One GPUDevice for the whole session: don't destroy it."""
    with adapter.request_device().result() as device:
        yield device


@pytest.fixture
def own_device(adapter: Any) -> Iterator[Any]:
    """A new GPUDevice for the test."""
    with adapter.request_device().result() as device:
        yield device


@pytest.fixture
def compiler() -> None:
    """Skips the test if GLSL can't be compiled."""
    needs_compiler()


@pytest.fixture(params=["same", "two"])
def pair(request: pytest.FixtureRequest, adapter: Any) -> Iterator[tuple[Any, Any]]:
    """A context and a GPUDevice to share with: on one Vulkan device, and on two of one machine."""
    import webnn_vk
    from webnn_vk.support.settings import Settings

    with adapter.request_device().result() as device:
        if request.param == "same":
            made = webnn_vk.ml.create_context(device).result()
        else:
            if "external_memory_fd" not in adapter.features:
                pytest.skip("the device has no external memory")
            settings = Settings(device=str(adapter.info.index))
            made = webnn_vk.ml.create_context(settings=settings).result()
        with made as context:
            yield context, device

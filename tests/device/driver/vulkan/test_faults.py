import pytest

from tests.support.driver_proxy import has_interface
from tests.support.faults import FaultyDriver
from webnn_vk.driver import DeviceLost, FillCommand, OutOfDeviceMemory
from webnn_vk.driver.vulkan.driver import VulkanDriver
from webnn_vk.driver.vulkan.errors import VulkanError


def test_faults_happen_when_told(own_driver: VulkanDriver) -> None:
    faulty = FaultyDriver(own_driver)
    assert has_interface(faulty)
    faulty.fail_allocation(2)
    data = faulty.allocate(256)
    with pytest.raises(OutOfDeviceMemory):
        faulty.allocate(256)
    assert faulty.allocate(256).size == 256
    recording = faulty.record([FillCommand(data, 0, 256)])
    faulty.fail_submit()
    with pytest.raises(VulkanError, match="injected"):
        faulty.submit([recording])
    assert faulty.submitted() == 0
    assert faulty.wait(faulty.submit([recording]), 60)
    faulty.lose()
    assert "injected" in faulty.lost()
    for call in (lambda: faulty.allocate(1), lambda: faulty.submit([recording]),
                 lambda: faulty.wait(1), faulty.completed, lambda: faulty.record([])):
        with pytest.raises(DeviceLost):
            call()
    assert faulty.injected == {"allocation": 1, "submit": 1, "lost": 1}

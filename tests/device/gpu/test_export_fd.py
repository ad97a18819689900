"""Tensors' memory as file descriptors: opened by another Vulkan device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import webnn_vk
from tests.support.open_files import left_open, open_files
from webnn_vk import InvalidStateError, MLGraphBuilder
from webnn_vk.driver import CopyCommand, ExternalMemory
from webnn_vk.driver.vulkan.driver import open_driver

VALUES = np.arange(300, dtype=np.float32)
DESCRIPTOR = {"data_type": "float32", "shape": [300], "readable": True, "writable": True}


@pytest.fixture
def context(adapter: Any) -> Iterator[Any]:
    if "external_memory_fd" not in adapter.features:
        pytest.skip("the device has no external memory")
    settings = webnn_vk.Settings(device=str(adapter.info.index))
    with webnn_vk.ml.create_context(settings=settings).result(60) as context:
        yield context


@pytest.fixture
def other(adapter: Any) -> Iterator[Any]:
    """A new driver on the same hardware, independent of the tensors."""
    driver = open_driver(adapter._physical)
    yield driver
    driver.close()


def opened(other: Any, memory: Any) -> Any:
    """The steps of any importer with the record, here with our own driver."""
    types = other.profile.memory_types
    local = next(i for i, (_, names) in enumerate(types) if "device_local" in names)
    external = ExternalMemory(
        memory.fd, memory.offset, -(-memory.size // 256) * 256, memory.allocation_size, local,
        memory.device_uuid.hex(),
    )
    return other.sharing.import_memory(external)


def run(driver: Any, *commands: Any) -> None:
    assert driver.wait(driver.submit([driver.record(commands)]), 60)


def seen(driver: Any, allocation: Any, count: int = 300) -> np.ndarray:
    staging = driver.allocate(4 * count, host=True)
    run(driver, CopyCommand(allocation, 0, staging, 0, 4 * count))
    staging.invalidate()
    return np.frombuffer(staging.mapped, np.float32)[:count].copy()


def test_there_and_back(context: Any, other: Any) -> None:
    """A dispatch's result is read, and its next input written, by a foreign device."""
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [300]})
    graph = builder.build({"y": builder.linear(x, alpha=2.0, beta=1.0)}).result(60)
    source, target = (
        context.create_exportable_tensor(DESCRIPTOR).result(60) for _ in range(2)
    )
    assert not source.importable_to_web_gpu
    context.write_tensor(source, VALUES)
    context.dispatch(graph, {"x": source}, {"y": target})
    memories = [tensor.export_fd() for tensor in (source, target)]
    assert [memory.size for memory in memories] == [1200, 1200]
    assert all(m.allocation_size >= m.offset + m.size for m in memories)
    theirs = [opened(other, memory) for memory in memories]
    context.fence().wait(60)
    assert np.array_equal(seen(other, theirs[1]), VALUES * 2 + 1)
    run(other, CopyCommand(theirs[1], 0, theirs[0], 0, 1200))
    context.dispatch(graph, {"x": source}, {"y": target})
    assert np.array_equal(context.read_tensor(target).result(60), (VALUES * 2 + 1) * 2 + 1)


def test_the_memory_outlives_the_tensor(context: Any, other: Any) -> None:
    tensor = context.create_exportable_tensor(DESCRIPTOR).result(60)
    context.write_tensor(tensor, VALUES)
    context.fence().wait(60)
    theirs = opened(other, tensor.export_fd())
    tensor.destroy()
    with pytest.raises(InvalidStateError):
        tensor.export_fd()
    context.destroy()
    assert np.array_equal(seen(other, theirs), VALUES)


def test_the_descriptor_is_the_callers(context: Any) -> None:
    tensor = context.create_exportable_tensor(DESCRIPTOR).result(60)
    files = open_files()
    first, second = tensor.export_fd(), tensor.export_fd()
    assert first.fd != second.fd
    assert first == replace(second, fd=first.fd)
    for memory in (first, second):
        memory.close()
    assert not left_open(files)
    with pytest.raises(OSError):
        first.close()


def test_tensors_without(context: Any, cpu_context: Any) -> None:
    tensor = context.create_tensor(DESCRIPTOR).result(60)
    with pytest.raises(TypeError, match="create_exportable_tensor"):
        tensor.export_fd()
    with pytest.raises(TypeError, match="create_exportable_tensor"):
        cpu_context.create_tensor(DESCRIPTOR).result(60).export_fd()
    alone = context.create_exportable_tensor(DESCRIPTOR).result(60)
    with pytest.raises(TypeError, match="without a GPUDevice"):
        context.export_to_gpu(alone)

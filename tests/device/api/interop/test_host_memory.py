"""Weights of a memory-mapped file, in place."""

from __future__ import annotations

import gc
import json
import mmap
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.device.api.interop.conftest import floats
from tests.support.contexts import open_over
from tests.support.counting import peak_bytes_of
from tests.support.drivers import require_vulkan
from webnn_vk import MLGraphBuilder, NotSupportedError
from webnn_vk.api.interop.host_memory import mapping_around, obstacle
from webnn_vk.support import mmap_array

SHAPE = (2048, 1024)
NAMES = ("first", "second")


@pytest.fixture(params=["cpu", "vulkan"])
def sharing(request, open_kind):
    context = open_kind(request.param)
    device = context._state.device
    if device.profile is not None and "external_memory_host" not in device.profile.features:
        pytest.skip("the device has no VK_EXT_external_memory_host")
    return context


@pytest.fixture(scope="module")
def weights():
    random = np.random.default_rng(1)
    return {name: random.uniform(-1, 1, SHAPE).astype(np.float32) for name in NAMES}


@pytest.fixture(scope="module")
def file(weights, tmp_path_factory):
    """The layout of safetensors, with a header padded so that the data starts at byte 64."""
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    header, end = {}, 0
    for name, array in weights.items():
        header[name] = {"dtype": "F32", "shape": array.shape,
                        "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    text = text.ljust(-(-(len(text) + 8) // 64) * 64 - 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text
                     + b"".join(array.tobytes() for array in weights.values()))
    return path


def load(path):
    """Name → array in a read-only mapping of the file."""
    mapped = np.memmap(path, np.uint8, mode="r")
    start = 8 + int.from_bytes(mapped[:8].tobytes(), "little")
    found = {}
    for name, entry in json.loads(mapped[8:start].tobytes()).items():
        first, end = (start + offset for offset in entry["data_offsets"])
        found[name] = mapped[first:end].view(np.float32).reshape(entry["shape"])
    return found


def resident():
    """KiB of this process' memory that are not pages of files."""
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return sum(int(lines[name].split()[0]) for name in ("RssAnon", "RssShmem"))


def device_bytes(context):
    """Bytes in use on the device, without shared memory. (Empty blocks may be freed at any time.)
    """
    context.fence().wait(60)
    if context._state.device.profile is None:
        return context._state.device.memory_in_use()
    use = context._state.device.driver.memory_in_use()
    return use.allocated - use.imported


def build(context, arrays, make):
    """y = x · first · secondᵀ"""
    builder = MLGraphBuilder(context)
    descriptor = {"data_type": "float32", "shape": SHAPE}
    constants = [builder.constant(make(descriptor, arrays[name]).result()) for name in NAMES]
    x = builder.input("x", {"data_type": "float32", "shape": [1, SHAPE[0]]})
    middle = builder.matmul(x, constants[0])
    return builder.build({"y": builder.gemm(middle, constants[1], b_transpose=True)}).result()


def run_from(sharing, file, weights, measure):
    """Builds on the file and computes, which ``measure`` calls, after everything that is made once.
    What it returns, and the bytes that the device has more."""
    x = np.random.default_rng(2).uniform(-1, 1, (1, SHAPE[0])).astype(np.float32)
    # Shaders and everything else that is made once.
    small = build(sharing, weights, sharing.create_constant_tensor)
    expected = sharing.compute(small, {"x": x})["y"]
    small.destroy()
    del small
    gc.collect()
    content, taken, kept = file.read_bytes(), device_bytes(sharing), []

    def run():
        graph = build(sharing, load(file), sharing.import_constant_tensor)
        gc.collect()  # graph and tensors keep their part of the mapping
        kept[:] = graph, sharing.compute(graph, {"x": x})["y"]

    grown, used = measure(run), device_bytes(sharing) - taken
    result = kept[1]
    assert np.array_equal(result, expected)
    reference = x.astype(np.float64) @ weights["first"] @ weights["second"].T
    assert np.abs(result - reference).max() <= 1e-4 * np.abs(reference).max()
    assert file.read_bytes() == content
    return grown, used


def test_a_model_runs_from_the_file(sharing, file, weights, monkeypatch):
    """Neither the host nor the device has a copy of its 16 MiB of weights at any time."""
    mapped = []

    class Counted(mmap.mmap):
        """Large arrays of the library are anonymous maps."""

        def __new__(cls, number, size, *arguments, **options):
            mapped.append(size if number == -1 else 0)
            return super().__new__(cls, number, size, *arguments, **options)

    monkeypatch.setattr(mmap_array, "mmap", SimpleNamespace(**{**vars(mmap), "mmap": Counted}))
    allocated, used = run_from(sharing, file, weights, peak_bytes_of)
    assert allocated + sum(mapped) <= 4 << 20
    assert used <= 1 << 20


@pytest.mark.explore  # other threads of the process take memory too
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_process_does_not_grow_by_a_model_in_a_file(sharing, file, weights):
    def growth(run):
        before = resident()
        run()
        return resident() - before

    grown, _ = run_from(sharing, file, weights, growth)
    # Only allocators' pools may have grown.
    assert grown <= 4 << 10


def test_it_is_the_callers_memory(sharing):
    array = np.frombuffer(mmap.mmap(-1, 1 << 14), np.float32)
    array[:4] = floats(1, 2, 3, 4)
    tensor = sharing.import_constant_tensor(
        {"data_type": "float32", "shape": [4]}, array[:4]).result()
    assert tensor.constant and not tensor.readable and not tensor.writable
    builder = MLGraphBuilder(sharing)
    x = builder.input("x", {"data_type": "float32", "shape": [4]})
    copied = sharing.create_constant_tensor({"data_type": "float32", "shape": [4]}, array[:4])
    graph = builder.build({
        "shared": builder.add(x, builder.constant(tensor)),
        "copied": builder.add(x, builder.constant(copied.result())),
        "constant": builder.add(x, builder.constant(
            {"data_type": "float32", "shape": [4]}, array[:4])),
    }).result()
    # Not allowed, but it shows that the memory is shared (and that the others copied).
    array[:4] = floats(5, 6, 7, 8)
    results = sharing.compute(graph, {"x": floats(0, 0, 0, 0)})
    assert results["shared"].tolist() == [5, 6, 7, 8]
    assert results["copied"].tolist() == results["constant"].tolist() == [1, 2, 3, 4]


def test_the_buffer_is_kept_and_let_go(sharing, file):
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
    sharing.fence().wait(60)
    before = sharing._state.device.memory_in_use()
    # Two tensors in one page.
    views = [memoryview(mapped)[start:start + 64] for start in (64, 128)]
    descriptor = {"data_type": "float32", "shape": [16]}
    tensors = [sharing.import_constant_tensor(descriptor, view).result() for view in views]
    builder = MLGraphBuilder(sharing)
    graph = builder.build({"y": builder.add(*map(builder.constant, tensors))}).result()
    expected = np.add(*(np.frombuffer(view, np.float32) for view in views))
    for tensor in tensors:
        tensor.destroy()
    del tensors, tensor, views, builder
    gc.collect()
    assert np.array_equal(sharing.compute(graph, {})["y"], expected)
    with pytest.raises(BufferError):
        mapped.close()
    graph.destroy()
    del graph
    gc.collect()
    sharing.fence().wait(60)
    assert sharing._state.device.memory_in_use() == before
    mapped.close()


def test_what_does_not_fit(sharing, file):
    array = next(iter(load(file).values())).reshape(-1)
    for shape, buffer, message in (
        ([3], array[:4], "16 bytes"),
        ([4], array[:4].view(np.int16), "int16"),
        ([4], array[:8:2], "not contiguous"),
        ([0], array[:4], "dimension"),
        ([4], [1, 2, 3, 4], "buffer protocol"),
    ):
        promise = sharing.import_constant_tensor({"data_type": "float32", "shape": shape}, buffer)
        with pytest.raises(TypeError, match=message):
            promise.result()


def test_data_that_a_device_cannot_bind(open_kind, file):
    require_vulkan()
    context = open_kind("vulkan")
    array = next(iter(load(file).values())).reshape(-1)[1:5]
    with pytest.raises(TypeError, match="4 bytes after a multiple of .*create_constant_tensor"):
        context.import_constant_tensor({"data_type": "float32", "shape": [4]}, array).result()


def test_without_the_extension():
    require_vulkan()
    context, _ = open_over(lambda driver: driver, mask=("external_memory_host",))
    with context:
        with pytest.raises(NotSupportedError, match="VK_EXT_external_memory_host"):
            context.import_constant_tensor({"data_type": "float32", "shape": [4]},
                                           bytearray(17)[1:]).result()


def test_large_steps_need_a_mapping_around_the_data(open_kind):
    require_vulkan()
    profile = replace(open_kind("vulkan")._state.device.profile,
                      min_imported_host_pointer_alignment=1 << 16)
    start = 3 << 16
    assert obstacle(profile, start + 4096, 1000, (start, start + (1 << 16))) is None
    for address, size, mapping in (
        (start + 4096, 1000, None),
        (start + 4096, 1 << 16, (start, start + (1 << 16))),
        (start + 4096, 1000, (start + 4096, start + (1 << 17))),
    ):
        assert "steps of 65536 bytes" in obstacle(profile, address, size, mapping)
    mapped = mmap.mmap(-1, 5000)
    array = np.frombuffer(mapped, np.uint8)
    assert mapping_around(array[100:200]) == (array.ctypes.data, array.ctypes.data + 8192)
    assert mapping_around(np.frombuffer(memoryview(mapped)[10:], np.uint8)[3:])[0] == (
        array.ctypes.data)
    assert mapping_around(np.zeros(5)) is None

"""Query sets: times of compute passes, in nanoseconds, as in WebGPU."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.driver_proxy import DriverProxy
from tests.support.gpu_shaders import ALL, STORAGE, push, scale_pipeline
from tests.support.profiles import NAMES, stored_profile
from webnn_vk import InvalidStateError, NotSupportedError, OperationError, Settings
from webnn_vk.driver import DeviceLost, OutOfDeviceMemory, ResolveCommand
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.gpu import GPUAdapter, GPUBufferUsage, GPUDevice, nanoseconds
from webnn_vk.gpu.recorded import step_of
from webnn_vk.runtime.device_selection import open_device
from webnn_vk.runtime.driver_device import DriverDevice

RESOLVE = GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC
FEATURE = "timestamp-query"


@pytest.fixture(autouse=True)
def timestamps(adapter: Any, compiler: None) -> None:
    if FEATURE not in adapter.features:
        pytest.skip("the device has no timestamps")


def writes(queries: Any, begin: int | None = None, end: int | None = None) -> dict[str, Any]:
    given = {"beginning_of_pass_write_index": begin, "end_of_pass_write_index": end}
    return {"query_set": queries, **{k: v for k, v in given.items() if v is not None}}


def work(device: Any, encoder: Any, queries: Any, *indices: int | None) -> None:
    """Records a pass that takes a while."""
    made = scale_pipeline(device, 2)
    buffers = [device.create_buffer(size=1 << 20, usage=STORAGE) for _ in range(2)]
    with encoder.begin_compute_pass(timestamp_writes=writes(queries, *indices)) as compute:
        compute.set_pipeline(made)
        compute.set_bind_group(0, device.create_bind_group(entries=buffers))
        compute.set_push_constants(push(1 << 18))
        compute.dispatch_workgroups(1 << 12)


def times(device: Any, buffer: Any) -> list[int]:
    return device.queue.read_buffer(buffer).result(60).view(np.uint64).tolist()


def test_times_of_passes(device: Any) -> None:
    queries = device.create_query_set(type="timestamp", count=6, label="passes")
    assert (queries.type, queries.count, queries.label) == ("timestamp", 6, "passes")
    assert repr(queries) == "<GPUQuerySet 'passes' of 6 timestamps>"
    target = device.create_buffer(size=1024, usage=RESOLVE | GPUBufferUsage.COPY_DST)
    device.queue.write_buffer(target, 0, np.full(128, 7, np.uint64))
    encoder = device.create_command_encoder()
    work(device, encoder, queries, 0, 1)
    work(device, encoder, queries, 2)
    work(device, encoder, queries, None, 4)
    encoder.resolve_query_set(queries, 0, 6, target, 256)
    command = encoder.finish()
    device.queue.on_submitted_work_done().result(60)
    before = time.perf_counter_ns()
    device.queue.submit([command])
    found = times(device, target)
    waited = time.perf_counter_ns() - before
    assert found[:32] == [7] * 32 and found[38:] == [7] * 90
    first, second, third, nothing, last, unwritten = found[32:38]
    assert (nothing, unwritten) == (0, 0)
    assert 0 < first < second <= third < last
    # In nanoseconds: the passes ran while the host waited for them.
    assert last - first <= waited
    # Once more, from another encoder: later times, and unchanged slots.
    encoder = device.create_command_encoder()
    work(device, encoder, queries, 3, 5)
    encoder.resolve_query_set(queries, 1, 5, target, 0)
    device.queue.submit([encoder.finish()])
    again = times(device, target)[:5]
    assert [again[0], again[1], again[3]] == [second, third, last]
    assert last < again[2] < again[4]


def test_a_command_buffer_again_writes_new_times(device: Any) -> None:
    queries = device.create_query_set(type="timestamp", count=2)
    target = device.create_buffer(size=16, usage=RESOLVE)
    encoder = device.create_command_encoder()
    work(device, encoder, queries, 0, 1)
    encoder.resolve_query_set(queries, 0, 2, target, 0)
    command = encoder.finish()
    found = []
    for _ in range(3):
        device.queue.submit([command])
        found += times(device, target)
    assert found == sorted(set(found))


def test_resolving_nothing(device: Any) -> None:
    queries = device.create_query_set(type="timestamp", count=2)
    target = device.create_buffer(size=16, usage=RESOLVE)
    encoder = device.create_command_encoder()
    encoder.resolve_query_set(queries, 2, 0, target, 0)
    device.queue.submit([encoder.finish()])
    assert times(device, target) == [0, 0]


def test_wrong_query_sets(device: Any) -> None:
    for options, error, message in (
        ({"type": "occlusion", "count": 1}, ValueError, "type 'occlusion'; \"timestamp\" is"),
        ({"type": "timestamp", "count": 0}, ValueError, "count 0; 1 to 4096"),
        ({"type": "timestamp", "count": 4097}, ValueError, "count 4097; 1 to 4096"),
        ({"type": "timestamp", "count": 1.5}, TypeError, "an integer is expected"),
        ({"type": "timestamp", "count": 1, "label": 2}, TypeError, "the label has to be a str"),
    ):
        with pytest.raises(error, match=f"create_query_set.*{message}"):
            device.create_query_set(**options)


def test_wrong_writes(device: Any, own_device: Any) -> None:
    queries = device.create_query_set(type="timestamp", count=4, label="times")
    foreign = own_device.create_query_set(type="timestamp", count=4)
    encoder = device.create_command_encoder()
    begin, end = "beginning_of_pass_write_index", "end_of_pass_write_index"
    for given, error, message in (
        (queries, TypeError, "a mapping with query_set, beginning_of_pass_write_index and"),
        ({begin: 0, end: 1}, TypeError, "a mapping with query_set"),
        ({"query_set": queries, "begin": 0}, TypeError, "unknown members begin; they are"),
        ({"query_set": 3, end: 0}, TypeError, "a GPUQuerySet is expected, not int"),
        ({"query_set": queries, end: True}, TypeError, f"{end}: an integer is expected"),
        ({"query_set": queries}, ValueError, f"one of {begin} and {end} is needed"),
        ({"query_set": queries, begin: 2, end: 2}, ValueError, "both indices are 2"),
        ({"query_set": queries, begin: 4}, ValueError,
         f"{begin} 4; <GPUQuerySet 'times' of 4 timestamps>"),
        ({"query_set": queries, end: -1}, ValueError, f"{end} -1; <GPUQuerySet"),
        ({"query_set": foreign, end: 0}, ValueError, "belongs to another GPUDevice"),
    ):
        with pytest.raises(error, match=message) as caught:
            encoder.begin_compute_pass(label="p", timestamp_writes=given)
        assert str(caught.value).startswith("begin_compute_pass [p]: timestamp_writes")
    encoder.finish()  # none of them has begun a pass


def test_wrong_resolving(device: Any, own_device: Any) -> None:
    queries = device.create_query_set(type="timestamp", count=4)
    target = device.create_buffer(size=512, usage=RESOLVE)
    other = device.create_buffer(size=512, usage=ALL)
    foreign = own_device.create_buffer(size=512, usage=RESOLVE)
    encoder = device.create_command_encoder()
    for arguments, error, message in (
        ((None, 0, 1, target, 0), TypeError, "a GPUQuerySet is expected, not NoneType"),
        ((queries, 0.0, 1, target, 0), TypeError, "first_query: an integer"),
        ((queries, 0, "1", target, 0), TypeError, "query_count: an integer"),
        ((queries, 0, 1, queries, 0), TypeError, "a GPUBuffer is expected, not GPUQuerySet"),
        ((queries, 0, 1, target, None), TypeError, "destination_offset: an integer"),
        ((queries, 0, 5, target, 0), ValueError, "5 queries from 0 on; <GPUQuerySet of 4 timest"),
        ((queries, 4, 1, target, 0), ValueError, "1 queries from 4 on"),
        ((queries, -1, 1, target, 0), ValueError, "1 queries from -1 on"),
        ((queries, 0, -1, target, 0), ValueError, "-1 queries from 0 on"),
        ((queries, 0, 1, target, 8), ValueError, "offset 8 is not a multiple of 256"),
        ((queries, 0, 1, target, 512), ValueError, "8 bytes from 512 on are not inside"),
        ((queries, 0, 1, target, -256), ValueError, "8 bytes from -256 on are not inside"),
        ((queries, 0, 1, other, 0), ValueError, "not created with usage QUERY_RESOLVE"),
        ((queries, 0, 1, foreign, 0), ValueError, "belongs to another GPUDevice"),
    ):
        with pytest.raises(error, match=f"resolve_query_set: .*{message}|resolve_query_set: "
                           f"{message}"):
            encoder.resolve_query_set(*arguments)
    with encoder.begin_compute_pass(), pytest.raises(InvalidStateError, match="pass is open"):
        encoder.resolve_query_set(queries, 0, 1, target, 0)
    encoder.finish()
    with pytest.raises(InvalidStateError, match="the encoder is finished"):
        encoder.resolve_query_set(queries, 0, 1, target, 0)


def test_destroyed_sets(device: Any) -> None:
    target = device.create_buffer(size=8, usage=RESOLVE)
    with device.create_query_set(type="timestamp", count=2) as queries:
        encoder = device.create_command_encoder()
        compute = encoder.begin_compute_pass(timestamp_writes=writes(queries, 0, 1))
    assert repr(queries) == "<GPUQuerySet of 2 timestamps destroyed>"
    queries.destroy()
    compute.end()
    command = encoder.finish()
    with pytest.raises(InvalidStateError, match=r"submit: <GPUQuerySet .* was destroyed"):
        device.queue.submit([command])
    encoder = device.create_command_encoder()
    with pytest.raises(InvalidStateError, match="was destroyed"):
        encoder.begin_compute_pass(timestamp_writes=writes(queries, 0))
    with pytest.raises(InvalidStateError, match="was destroyed"):
        encoder.resolve_query_set(queries, 0, 1, target, 0)


def test_without_the_feature(adapter: Any) -> None:
    masked = adapter.request_device(settings=Settings(mask=("timestamps",))).result(60)
    with masked as device:
        assert FEATURE in adapter.features and FEATURE not in device.features
        with pytest.raises(NotSupportedError, match="no feature timestamp-query: no timestamps on"):
            device.create_query_set(type="timestamp", count=1)


def over(adapter: Any, wrap: Any, **profile: Any) -> tuple[GPUDevice, Any]:
    """A GPUDevice over ``wrap(driver)``, whose device reports other properties."""
    physical = adapter._physical
    physical = replace(physical, profile=physical.profile.replace(**profile))
    settings = Settings.from_environment()
    opened = open_device(physical, settings)
    driver = wrap(opened.driver)
    return GPUDevice(adapter, DriverDevice(driver, opened.shaders), settings), driver


def test_a_driver_without_the_facet(adapter: Any) -> None:
    class Plain(DriverProxy):
        timestamps = None

    with over(adapter, Plain)[0] as device:
        assert FEATURE not in device.features
        with pytest.raises(NotSupportedError, match="its driver writes no timestamps"):
            device.create_query_set(type="timestamp", count=1)


@pytest.mark.parametrize(
    ("failure", "error"),
    [(OutOfDeviceMemory("no room"), OperationError), (DeviceLost("gone"), InvalidStateError)],
)
def test_a_driver_that_fails(adapter: Any, failure: Exception, error: type[Exception]) -> None:
    class Failing(DriverProxy):
        @property
        def timestamps(self) -> Any:
            return self

        def queries(self, count: int) -> Any:
            raise failure

    with over(adapter, Failing)[0] as device:
        with pytest.raises(error, match=f"create_query_set.*{failure}"):
            device.create_query_set(type="timestamp", count=1)
        assert device.lost.done() == isinstance(failure, DeviceLost)


@pytest.mark.parametrize("name", NAMES)
def test_ticks_become_nanoseconds(device: Any, name: str) -> None:
    """The kernel compared with Python's integers, for the clocks of real devices."""
    profile = stored_profile(name)
    random = np.random.default_rng(5)
    ticks = random.integers(0, 2**64, 200, np.uint64)
    ticks[:4] = (0, 1, 2**64 - 1, 2**32 - 1)
    buffer = device.create_buffer_with_data(data=ticks, usage=ALL)
    module = device.create_shader_module(code=nanoseconds.spec())
    made = device.create_compute_pipeline(module=module, constants={"LX": 64})
    encoder = device.create_command_encoder()
    with encoder.begin_compute_pass() as compute:
        compute.set_pipeline(made)
        compute.set_bind_group(0, device.create_bind_group(entries=[buffer]))
        compute.set_push_constants(nanoseconds.params(200, profile))
        compute.dispatch_workgroups(4)
    device.queue.submit([encoder.finish()])
    assert times(device, buffer) == [exact(int(tick), profile) for tick in ticks]


def exact(tick: int, profile: DeviceProfile) -> int:
    counted = tick % 2**profile.timestamp_valid_bits
    numerator, denominator = float(np.float32(profile.timestamp_period)).as_integer_ratio()
    return counted * numerator // denominator % 2**64


def test_a_device_whose_ticks_are_no_nanoseconds(adapter: Any) -> None:
    """The clock's rate is simulated; the conversion of its counts is real."""
    clock = {"timestamp_period": float(np.float32(52.0833333)), "timestamp_valid_bits": 36}
    with over(adapter, lambda driver: driver, **clock)[0] as device:
        queries = device.create_query_set(type="timestamp", count=70)
        target = device.create_buffer(size=1024, usage=RESOLVE)
        raw = device.create_buffer(size=1024, usage=RESOLVE)
        encoder = device.create_command_encoder()
        work(device, encoder, queries, 0, 69)
        encoder.resolve_query_set(queries, 0, 70, target, 256)
        command = ResolveCommand(queries._contents[0], 0, 70, raw._contents[0].backing, 0)
        encoder._log.append(step_of(command, {raw: (False, True)}))
        device.queue.submit([encoder.finish()])
        ticks = times(device, raw)[:70]
        profile = device._state.device.profile
        assert ticks[0] and ticks[69]
        assert times(device, target)[32:102] == [exact(tick, profile) for tick in ticks]


@pytest.mark.filterwarnings("ignore:the shader archive is not used")
def test_without_the_kernel_that_converts(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBNN_VK_PACK", "/nonexistent")
    settings = Settings(glslang="none", cache="off")
    physical = adapter._physical
    physical = replace(physical, profile=physical.profile.replace(timestamp_period=2.0))
    with GPUAdapter(physical).request_device(settings=settings).result(60) as device:
        with pytest.raises(NotSupportedError, match="create_shader_module"):
            device.create_query_set(type="timestamp", count=1)

"""Common behaviour of every driver: raw Vulkan, Kompute, and the null driver, which computes
nothing."""

from __future__ import annotations

import gc
import struct
import threading
from collections.abc import Callable

import numpy as np
import pytest

from tests.support.driver_proxy import DriverProxy
from webnn_vk.driver import (
    Allocation,
    BarrierCommand,
    Command,
    CopyCommand,
    DispatchCommand,
    Driver,
    DriverClosed,
    FeatureMissing,
    FillCommand,
    OutOfDeviceMemory,
    Pipeline,
    PipelineRequest,
    TimestampCommand,
    sharing_of,
    timestamps_of,
)
from webnn_vk.driver.device_profile import DeviceProfile

MakePipeline = Callable[..., Pipeline]
MakeRequest = Callable[..., PipelineRequest]


def run(driver: Driver, *commands: Command) -> None:
    assert driver.wait(driver.submit([driver.record(commands)]), 60)


def upload(driver: Driver, values: np.ndarray) -> Allocation:
    staging = driver.allocate(values.nbytes, host=True)
    staging.mapped[: values.nbytes] = values.tobytes()
    staging.flush()
    target = driver.allocate(values.nbytes)
    run(driver, CopyCommand(staging, 0, target, 0, values.nbytes))
    return target


def download(driver: Driver, source: Allocation, count: int) -> np.ndarray:
    staging = driver.allocate(4 * count, host=True)
    run(driver, CopyCommand(source, 0, staging, 0, 4 * count))
    staging.invalidate()
    return np.frombuffer(staging.mapped, np.uint32)[:count].copy()


def scale(pipeline: Pipeline, source: Allocation, target: Allocation, count: int,
          added: int = 0) -> DispatchCommand:
    """target = source * K + added for `count` elements."""
    return DispatchCommand(pipeline, ((source, 0, 4 * count), (target, 0, 4 * count)),
                           struct.pack("<II", count, added), (-(-count // 64), 1, 1))


# -- what it is
def test_it_is_a_driver(driver: Driver) -> None:
    assert isinstance(driver, Driver)
    assert isinstance(DriverProxy(driver), Driver)
    assert isinstance(driver.profile, DeviceProfile)
    assert DeviceProfile.from_json(driver.profile.to_json()) == driver.profile
    assert driver.lost() is None


def test_absent_facets_have_a_reason(driver: Driver) -> None:
    for facet, ask in (("sharing", sharing_of), ("timestamps", timestamps_of)):
        if getattr(driver, facet) is not None:
            assert ask(driver) is getattr(driver, facet)
            continue
        with pytest.raises(FeatureMissing) as raised:
            ask(driver)
        assert len(driver.absent[facet]) > 20 and driver.absent[facet] in str(raised.value)


def test_what_absent_facets_are_for_is_refused(driver: Driver) -> None:
    if driver.sharing is None:
        with pytest.raises(FeatureMissing, match="memory"):
            driver.allocate(16, exportable=True)
        for semaphores in ({"wait": [(object(), 1)]}, {"signal": [(object(), 1)]}):
            with pytest.raises(FeatureMissing, match="semaphores"):
                driver.submit([], **semaphores)
    if driver.timestamps is None:
        with pytest.raises(ValueError, match="timestamps"):
            driver.record([TimestampCommand(0)])


# -- memory and transfers
def test_copies_move_bytes_wherever_they_lie(driver: Driver) -> None:
    expected = np.arange(64, dtype=np.uint8)
    source = upload(driver, expected)
    target = upload(driver, np.full(64, 0xEE, np.uint8))
    want = np.full(64, 0xEE, np.uint8)
    for start, to, size in ((0, 0, 1), (1, 5, 3), (7, 12, 9), (16, 28, 8), (61, 61, 3)):
        run(driver, CopyCommand(source, start, target, to, size))
        want[to : to + size] = expected[start : start + size]
    assert download(driver, target, 16).tobytes() == want.tobytes()
    # Within one allocation.
    run(driver, CopyCommand(target, 0, target, 32, 16))
    want[32:48] = want[:16]
    assert download(driver, target, 16).tobytes() == want.tobytes()


def test_fills(driver: Driver) -> None:
    data = upload(driver, np.zeros(64, np.uint32))
    run(driver, FillCommand(data, 0, 256, 3), BarrierCommand(),
        FillCommand(data, 4, 8, 0xDEADBEEF))
    assert list(download(driver, data, 4)) == [3, 0xDEADBEEF, 0xDEADBEEF, 3]
    assert np.array_equal(download(driver, data, 64)[4:], np.full(60, 3))


@pytest.mark.parametrize("command", [
    lambda a: CopyCommand(a, 1000, a, 0, 100), lambda a: CopyCommand(a, 0, a, 1000, 100),
    lambda a: FillCommand(a, 1020, 8), lambda a: FillCommand(a, 2, 4),
    lambda a: FillCommand(a, 0, 2),
])
def test_transfers_stay_within_their_memory(driver: Driver, command: Callable) -> None:
    with pytest.raises(ValueError):
        driver.record([command(driver.allocate(1024))])


def test_host_memory_is_mapped_and_aligned_sizes_are_at_least_what_was_asked(driver: Driver
                                                                             ) -> None:
    for size in (0, 1, 3, 255, 257):
        host = driver.allocate(size, host=True)
        assert host.size >= max(size, 1) and len(host.mapped) == host.size
        assert not host.mapped.readonly
        assert driver.allocate(size).size >= max(size, 1)


def test_memory_that_the_host_accesses_too(driver: Driver, pipeline: MakePipeline,
                                           computes: bool) -> None:
    """Kernels and copies use it like any other memory, whether or not it is mapped."""
    values = np.arange(500, dtype=np.uint32)
    source = driver.allocate(2000, host_access="write")
    target = driver.allocate(2000, host_access="read")
    if source.mapped is None:
        staged = upload(driver, values)
        run(driver, CopyCommand(staged, 0, source, 0, 2000))
    else:
        source.write(values.view(np.uint8))
    run(driver, FillCommand(target, 0, 2000, 9), BarrierCommand(),
        scale(pipeline(driver, 3), source, target, 499, 7))
    expected = np.append(values[:499] * 3 + 7 if computes else np.full(499, 9), 9)
    assert np.array_equal(download(driver, target, 500), expected)
    if target.mapped is not None:
        assert target.cached
        assert np.array_equal(target.read().view(np.uint32)[:500], expected)


def test_too_much_memory_is_refused(driver: Driver) -> None:
    profile = driver.profile
    before = driver.memory_in_use()
    for size in (profile.max_buffer_size + 256, profile.local_heap_size + 1, 1 << 33, 1 << 40):
        with pytest.raises(OutOfDeviceMemory):
            driver.allocate(size)
    assert driver.memory_in_use().allocated == before.allocated


def test_memory_is_counted_and_comes_back(own_driver: Driver, pipeline: MakePipeline) -> None:
    driver = own_driver
    assert driver.memory_in_use().allocations == 0
    source, target = driver.allocate(4096), driver.allocate(4096)
    recording = driver.record([scale(pipeline(driver, 2), source, target, 1024)])
    use = driver.memory_in_use()
    assert (use.allocations, use.allocated) == (2, 8192) and use.reserved >= use.allocated
    source.free()
    source.free()
    del target
    gc.collect()
    assert driver.memory_in_use().allocations == 2  # the recording holds it
    assert driver.wait(driver.submit([recording]), 60)
    recording.free()
    recording.free()
    del recording
    gc.collect()
    driver.wait(driver.submit([]), 60)
    assert driver.memory_in_use().allocations == 0


def test_what_was_freed_is_not_used(driver: Driver) -> None:
    data = driver.allocate(64)
    data.free()
    with pytest.raises(ValueError):
        driver.record([FillCommand(data, 0, 64)])
    recording = driver.record([])
    recording.free()
    with pytest.raises(ValueError):
        driver.submit([recording])


# -- dispatches
def test_dispatch(driver: Driver, pipeline: MakePipeline, computes: bool) -> None:
    values = np.arange(1000, dtype=np.uint32)
    source, target = upload(driver, values), upload(driver, np.full(1000, 9, np.uint32))
    run(driver, scale(pipeline(driver, 3), source, target, 999, 7))
    expected = np.append(values[:999] * 3 + 7 if computes else np.full(999, 9), 9)
    assert np.array_equal(download(driver, target, 1000), expected)


def test_barriers_order_dispatches_and_transfers(driver: Driver, pipeline: MakePipeline,
                                                 computes: bool) -> None:
    double = pipeline(driver, 2)
    buffers = [upload(driver, np.ones(4096, np.uint32)), driver.allocate(16384)]
    commands: list[Command] = []
    for step in range(10):
        commands += [scale(double, buffers[step % 2], buffers[1 - step % 2], 4096),
                     BarrierCommand()]
    copy = driver.allocate(16384)
    commands += [CopyCommand(buffers[0], 0, copy, 0, 16384), BarrierCommand(),
                 FillCommand(buffers[0], 0, 8192, 5), BarrierCommand(),
                 scale(double, buffers[0], buffers[1], 4096)]
    run(driver, *commands)
    if computes:
        assert np.array_equal(download(driver, copy, 4096), np.full(4096, 1024))
        expected = np.repeat([10, 2048], 2048)
        assert np.array_equal(download(driver, buffers[1], 4096), expected)


def test_independent_dispatches(driver: Driver, pipeline: MakePipeline, computes: bool) -> None:
    source = upload(driver, np.arange(256, dtype=np.uint32))
    targets = [driver.allocate(1024) for _ in range(8)]
    run(driver, *(scale(pipeline(driver, n + 1), source, target, 256, n)
                  for n, target in enumerate(targets)))
    for n, target in enumerate(targets):
        if computes:
            assert np.array_equal(download(driver, target, 256), np.arange(256) * (n + 1) + n)


def test_recordings_run_in_order_and_again(driver: Driver, pipeline: MakePipeline,
                                           computes: bool) -> None:
    data, other = driver.allocate(256), driver.allocate(256)
    first = driver.record([FillCommand(data, 0, 256, 1)])
    there = driver.record([scale(pipeline(driver, 5), data, other, 64, 1)])
    back = driver.record([scale(pipeline(driver, 5), other, data, 64, 1)])
    driver.submit([first])
    driver.wait(driver.submit([there, back, there, back]), 60)
    value = 1
    for _ in range(4):
        value = value * 5 + 1
    assert download(driver, data, 64)[7] == (value if computes else 1)


@pytest.mark.parametrize("groups", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_no_workgroups_do_nothing(driver: Driver, pipeline: MakePipeline,
                                  groups: tuple[int, int, int]) -> None:
    source, target = upload(driver, np.ones(64, np.uint32)), upload(driver, np.zeros(64, np.uint32))
    run(driver, DispatchCommand(pipeline(driver, 3), ((source, 0, 256), (target, 0, 256)),
                                struct.pack("<II", 64, 0), groups))
    assert not download(driver, target, 64).any()


def test_dispatches_are_held_to_the_device_and_the_pipeline(driver: Driver, pipeline: MakePipeline
                                                            ) -> None:
    a, b, one = driver.allocate(1024), driver.allocate(1024), pipeline(driver)
    push, profile = bytes(8), driver.profile
    most = profile.max_workgroup_count
    whole = ((a, 0, 1024), (b, 0, 1024))
    refused = [
        DispatchCommand(one, whole, push, (most[0] + 1, 1, 1)),
        DispatchCommand(one, whole, push, (1, most[1] + 1, 1)),
        DispatchCommand(one, whole, push, (1, 1, most[2] + 1)),
        DispatchCommand(one, whole, push, (-1, 1, 1)),
        DispatchCommand(one, whole, b"", (1, 1, 1)),
        DispatchCommand(one, whole, bytes(12), (1, 1, 1)),
        DispatchCommand(one, whole[:1], push, (1, 1, 1)),
        DispatchCommand(one, ((a, 0, 1028), (b, 0, 1024)), push, (1, 1, 1)),
        DispatchCommand(one, ((a, 1024, 4), (b, 0, 1024)), push, (1, 1, 1)),
        DispatchCommand(one, ((a, 4, 4), (b, 0, 1024)), push, (1, 1, 1)),
    ]
    if profile.whole_bindings:
        refused.append(DispatchCommand(one, ((a, 256, 256), (b, 0, 1024)), push, (1, 1, 1)))
    for command in refused:
        with pytest.raises(ValueError, match="scale"):
            driver.record([command])
    with pytest.raises(TypeError):
        driver.record(["no command"])


def test_bindings_at_offsets(driver: Driver, pipeline: MakePipeline, computes: bool) -> None:
    if driver.profile.whole_bindings:
        pytest.skip("the driver binds whole allocations")
    data = upload(driver, np.arange(256, dtype=np.uint32))
    run(driver, DispatchCommand(pipeline(driver, 1), ((data, 0, 256), (data, 768, 256)),
                                struct.pack("<II", 64, 100)))
    expected = np.arange(256)
    if computes:
        expected[192:] = np.arange(64) + 100
    assert np.array_equal(download(driver, data, 256), expected)


# -- pipelines
def test_equal_requests_share_a_pipeline(driver: Driver, pipeline: MakePipeline) -> None:
    three = pipeline(driver, 3)
    assert pipeline(driver, 3) is three and pipeline(driver, 4) is not three
    assert three.request.name == "scale"
    assert driver.wait(driver.precompile([three]), 60)


@pytest.mark.parametrize("changes", [
    {"spirv": b""}, {"spirv": b"\0" * 64}, {"spirv": b"\x03\x02\x23\x07\0"}, {"push_size": 6},
    {"push_size": 1 << 20}, {"binding_count": 1 << 20}, {"constants": ((0, b"\0\0"),)},
    {"subgroup_size": 3},
])
def test_pipelines_that_cannot_be_are_refused(driver: Driver, request_for: MakeRequest,
                                              changes: dict) -> None:
    with pytest.raises(ValueError, match="scale"):
        driver.pipelines([request_for(**changes)])


# -- the timeline
def test_submissions_are_numbered_and_waited_for(driver: Driver) -> None:
    before = driver.submitted()
    data = driver.allocate(1 << 20)
    recording = driver.record([FillCommand(data, 0, 1 << 20, 1)])
    values = [driver.submit([recording]) for _ in range(5)]
    assert values == list(range(before + 1, before + 6)) and driver.submitted() == values[-1]
    assert driver.wait(values[-1], 60)
    assert driver.wait(values[0], 0) and driver.completed() == values[-1]
    assert driver.wait(driver.submit([]), 60)
    with pytest.raises(ValueError, match="never submitted"):
        driver.wait(driver.submitted() + 1)


def test_any_thread_may_call(driver: Driver, pipeline: MakePipeline, computes: bool) -> None:
    failed: list[Exception] = []

    def work(number: int) -> None:
        try:
            for turn in range(5):
                source = upload(driver, np.full(128, number, np.uint32))
                target = driver.allocate(512)
                run(driver, scale(pipeline(driver, 2), source, target, 128, turn))
                if computes:
                    assert (download(driver, target, 128) == 2 * number + turn).all()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed


# -- the end
def test_closing_waits_and_then_everything_is_refused(own_driver: Driver, pipeline: MakePipeline
                                                      ) -> None:
    driver = own_driver
    data, other = upload(driver, np.ones(1 << 16, np.uint32)), driver.allocate(1 << 18)
    one = pipeline(driver)
    recording = driver.record([scale(one, data, other, 1 << 16)])
    for _ in range(10):
        value = driver.submit([recording])
    driver.close()
    driver.close()
    calls = [
        lambda: driver.allocate(16), lambda: driver.pipelines([one.request]),
        lambda: driver.precompile([one]), lambda: driver.record([]),
        lambda: driver.submit([recording]), lambda: driver.submit([]),
        lambda: driver.wait(value), driver.completed,
    ]
    for call in calls:
        with pytest.raises(DriverClosed):
            call()
    recording.free()
    data.free()
    other.free()
    driver.reclaim()
    assert driver.submitted() == value


def test_a_driver_that_nobody_has_any_more_goes(name: str, own_driver: Driver) -> None:
    def workers() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if t.name == "webnn_vk-kompute"}

    before = workers()
    recording = own_driver.record([FillCommand(own_driver.allocate(64), 0, 64)])
    own_driver.submit([recording])
    # Other tests' drivers have such threads too, which may end meanwhile.
    threads = workers() - before
    assert len(threads) == name.startswith("kompute")
    own_driver.close()
    gc.collect()
    assert not any(thread.is_alive() for thread in threads)

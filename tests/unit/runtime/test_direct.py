"""Direct work: calls that start their work themselves and wait for it themselves, on the null
driver and a device whose tensors the host can't see."""

import gc
import threading

import pytest

from tests.support.direct_world import PATIENCE, World, counting
from webnn_vk import InvalidStateError, Settings, ml
from webnn_vk.api.ml_graph import executable_of
from webnn_vk.driver import DeviceLost
from webnn_vk.runtime.direct import _UNUSED
from webnn_vk.runtime.work import Await
from webnn_vk.support import background

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*the null driver"), pytest.mark.usefixtures("never_quiet"),
]


@pytest.fixture(params=["other", "discrete"])
def world(request, monkeypatch):
    if request.param == "discrete":
        monkeypatch.setenv("WEBNN_VK_NULL_DEVICES", "1")
    world = World(ml.create_context(settings=Settings(driver="null")).result(PATIENCE))
    yield world
    world.context.destroy()


@pytest.fixture
def counted(world, monkeypatch):
    """What calls leave to other threads, and record."""
    seen = []
    driver, inbox = world.timeline.device.driver, world.timeline._scheduler.inbox
    for owner, name in (
        (inbox, "put"), (background, "run_on_worker"), (driver, "record"), (driver, "allocate"),
    ):
        monkeypatch.setattr(owner, name, counting(getattr(owner, name), name, seen))
    return seen


@pytest.mark.parametrize("call", ["write", "dispatch", "read", "fence", "compute", "all"])
def test_nothing_is_recorded_and_no_thread_wakes(world, counted, call):
    for _ in range(10):
        world.calls[call]()
    assert not counted


def test_values_in_the_order_of_the_calls(world, counted):
    for number in range(20):
        world.all(number)
        world.compute(-number)
    assert not counted


def test_a_read_comes_before_later_writes(world, counted):
    world.all(1)
    read = world.read()
    world.write(2)
    world.dispatch()
    assert read.result(PATIENCE).tolist() == [1] * 4
    assert world.read().result(PATIENCE).tolist() == [2] * 4
    assert not counted


def test_a_read_of_a_tensor_that_is_destroyed_before_anybody_asks(world):
    """As in JavaScript, where nothing is settled before the end of a script."""
    world.all(3)
    read = world.read()
    world.y.destroy()
    with pytest.raises(InvalidStateError, match="destroyed before it was read"):
        read.result(PATIENCE)


def test_two_reads_at_a_time(world):
    world.all(3)
    first, second = world.read(), world.read()
    assert second.result(PATIENCE).tolist() == first.result(PATIENCE).tolist() == [3] * 4


def test_the_same_array_each_time(world):
    read = world.read()
    assert read.result(PATIENCE) is read.result(PATIENCE)


def test_calls_behind_queued_work_wait_for_it(world):
    """Also behind another thread's."""
    opened, waiting = threading.Event(), threading.Event()

    def wait():
        waiting.set()
        opened.wait(PATIENCE)

    stream = world.context._state.stream
    thread = threading.Thread(target=lambda: stream.enqueue(Await(wait)))
    thread.start()
    thread.join()
    world.write(5)
    world.dispatch()
    read, fence = world.read(), world.context.fence()
    assert waiting.wait(PATIENCE)
    assert not read.done() and not fence.done and not fence.wait(0.01)
    with pytest.raises(TimeoutError):
        read.result(0.01)
    opened.set()
    assert read.result(PATIENCE).tolist() == [5] * 4
    assert fence.wait(PATIENCE) and fence.done
    world.settle()
    world.all(6)


def test_fences_count_what_came_before_them(world, counted):
    before = world.context.fence()
    assert before.done
    world.dispatch()
    after = world.context.fence()
    assert after.value == before.value + 1
    assert after.wait(0) and after.done
    assert not counted


def test_a_fence_that_outlives_direct_work(world):
    world.dispatch()
    fence = world.context.fence()
    world.timeline.catch_up()  # closes it
    assert fence.wait(PATIENCE) and fence.done
    world.context.destroy()
    assert fence.wait(PATIENCE) and fence.done


def test_memory_is_not_tidied_while_there_is_direct_work(world):
    direct = world.timeline.direct
    for call in world.calls.values():
        direct.quiet()
        assert direct.quiet()
        call()
        assert not direct.quiet() or call is world.calls["fence"]


@pytest.mark.parametrize("polls", [True, False])
def test_a_gpu_is_polled_before_a_thread_sleeps(world, monkeypatch, polls):
    slept = []

    def sleep(value, timeout=None):
        slept.append(value)
        return True

    monkeypatch.setattr(world.timeline.direct, "_polls", polls)
    monkeypatch.setattr(world.timeline.device.direct, "wait", sleep)
    world.dispatch()
    assert world.context.fence().wait(PATIENCE)
    assert len(slept) == (not polls)


def test_it_is_not_opened_at_once_after_many_calls_that_were_others(world):
    """But it is for one in a few, and when no call comes for a moment."""
    direct = world.timeline.direct
    direct.close()
    assert direct.pays()
    for _ in range(2 * _UNUSED):
        direct.open()
        direct.close()
    assert sum(direct.pays() for _ in range(4 * _UNUSED)) == 4
    world.timeline.catch_up()
    world.settle()
    world.dispatch()
    world.timeline.catch_up()
    assert direct.pays()


def test_an_error_is_seen(world):
    """Of work before: it is the timeline's."""
    world.x._state.storage.error = InvalidStateError("of before")
    world.dispatch()
    with pytest.raises(InvalidStateError, match="of before"):
        world.read().result(PATIENCE)
    world.write(8)
    world.dispatch()
    assert world.read().result(PATIENCE).tolist() == [8] * 4


# -- the end of the device -------------------------------------------------------------------------
@pytest.mark.parametrize("call", ["dispatch", "compute", "read", "fence"])
@pytest.mark.parametrize("at", ["submit", "completed", "wait"])
def test_a_lost_device_is_announced(world, monkeypatch, call, at):
    def lost(*arguments):
        raise DeviceLost("gone", "VK_ERROR_DEVICE_LOST")

    monkeypatch.setattr(world.timeline.device.direct, at, lost)
    monkeypatch.setattr(world.timeline.direct, "_polls", at == "completed")
    try:
        world.calls[call]()
    except InvalidStateError as error:
        assert "lost: gone" in str(error)
        assert "gone" in world.context.lost.result(PATIENCE).message
    else:
        assert (call, at) in {
            ("dispatch", "wait"), ("fence", "submit"), ("fence", "completed"),
        } or world.timeline.device.create_storage(4).backing.mapped is not None


def test_an_ended_context_takes_no_direct_work(world):
    world.context.destroy()
    for call in ("write", "dispatch", "compute"):
        with pytest.raises(InvalidStateError):
            world.calls[call]()
    while world.timeline.direct.possible:  # until the device is closed, in the background
        pass


def test_runs_of_freed_tensors_are_freed(world):
    executable = executable_of(world.graph)
    assert executable.kept._direct
    world.x.destroy()
    world.y.destroy()
    world.x = world.y = None
    gc.collect()
    executable.workspace.clear()
    world.timeline.device.free_deferred()
    assert not executable.kept._direct

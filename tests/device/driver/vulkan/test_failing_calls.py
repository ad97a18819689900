"""Each Vulkan call that the library makes returns each of its error codes, at every step of a
context's life that makes the call. `failing_calls.txt` is the table of the outcomes."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.direct_world import World
from tests.support.discriminating import assert_allclose
from tests.support.open_files import left_open, open_files
from tests.support.running import software_profile
from tests.support.vulkan_faults import ERRORS, FaultyLibrary, errors_of
from webnn_vk import (
    DOMException,
    InvalidStateError,
    MLGraphBuilder,
    NotSupportedError,
    OperationError,
    UnknownError,
)
from webnn_vk.api import create_tensor
from webnn_vk.driver import DriverError
from webnn_vk.driver.vulkan import binding
from webnn_vk.driver.vulkan.driver import open_driver
from webnn_vk.driver.vulkan.snapshot import PhysicalDevice
from webnn_vk.runtime import timeline
from webnn_vk.runtime.direct import DirectWork

TABLE = Path(__file__).with_name("failing_calls.txt")
PATIENCE = 60
#: Errors with which the steps may end, by the draft and the README; after a loss InvalidStateError
#: too.
DOCUMENTED = {
    "open": (NotSupportedError,),
    "tensors": (UnknownError,),
    "constant": (UnknownError,),
    "build": (OperationError,),
    "write": (),
    "dispatch": (),
    "read": (OperationError, UnknownError),
    "again": (OperationError, UnknownError),
    "destroy": (),
}
NUMBERS = np.arange(16, dtype=np.float32).reshape(4, 4)
EXPECTED = np.exp(NUMBERS) / np.exp(NUMBERS).sum(1, keepdims=True) + 3 * NUMBERS
DESCRIPTOR = {"data_type": "float32", "shape": [4, 4], "readable": True, "writable": True}


@pytest.fixture(scope="module", autouse=True)
def little_to_collect() -> None:
    """Each life ends with a collection, which looks at all that earlier tests have left alive."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, vulkan: None) -> Iterator[FaultyLibrary]:
    from webnn_vk.runtime.device_selection import find_devices

    # Idle devices call Vulkan too, at any time.
    monkeypatch.setattr(timeline, "QUIET_SECONDS", 3600.0)
    find_devices()  # the instance belongs to the process, and stays
    library = FaultyLibrary(binding)
    monkeypatch.setattr(binding, "lib", library)
    yield library
    library.disarm()


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is direct work: which would be depends on the timeline's threads. Constants are
    copied by the device, as on GPUs with memory of their own."""
    monkeypatch.setattr(DirectWork, "open", lambda self: None)
    monkeypatch.setattr(create_tensor, "fill", lambda storage, data: False)


def life(library: FaultyLibrary) -> dict[str, Any]:
    """A context's life, step by step: the outcome of each, a value, None or an exception. A step
    that needs a failed one is skipped."""
    results: dict[str, Any] = {"lost": False, "why": ""}
    library.place = "open"
    context = None

    def step(name: str, call: Any, *needed: Any) -> Any:
        if any(item is None for item in needed):
            return None
        library.place = name
        try:
            value = call()
            results[name] = value.result(PATIENCE) if hasattr(value, "result") else value
            if context is not None and name != "destroy":
                settle()
        except DOMException as error:
            results[name] = error
        return None if isinstance(results[name], Exception) else results[name]

    def tensors() -> Any:
        return [create() for _ in range(2)]

    def create() -> Any:
        tensor = context.create_tensor(DESCRIPTOR).result(PATIENCE)
        settle()
        return tensor

    def settle() -> None:
        # Timing must not affect what is submitted together, and what has finished by then.
        if not context.lost.done():
            context.fence().wait(PATIENCE)

    def build(given: Any) -> Any:
        builder = MLGraphBuilder(context)
        x = builder.input("x", {"data_type": "float32", "shape": [4, 4]})
        scaled = builder.matmul(x, builder.constant(np.eye(4, dtype=np.float32) * 3))
        return builder.build(
            {"y": builder.add(builder.softmax(x, 1), builder.mul(scaled, builder.constant(given)))})

    def read() -> Any:
        return context.read_tensor(pair[1])

    context = step("open", lambda: open_context("vulkan"))
    pair = step("tensors", tensors, context)
    given = step("constant", lambda: context.create_constant_tensor(
        {"data_type": "float32", "shape": [4, 4]}, np.ones((4, 4), np.float32)), context)
    graph = step("build", lambda: build(given), context, given)
    if pair is not None and graph is not None:
        step("write", lambda: context.write_tensor(pair[0], NUMBERS))
        step("dispatch", lambda: context.dispatch(graph, {"x": pair[0]}, {"y": pair[1]}))
        step("read", read)

        def once_more() -> Any:
            context.write_tensor(pair[0], NUMBERS)
            settle()
            context.dispatch(graph, {"x": pair[0]}, {"y": pair[1]})
            settle()
            return read()

        step("again", once_more)
    if context is not None:
        order = context._state.timeline
        if any("the context is lost" in str(result) for result in results.values()):
            # It is reported after the rejected calls.
            context.lost.result(PATIENCE)
        results["lost"] = context.lost.done()
        results["why"] = context.lost.result().message if results["lost"] else ""
        step("destroy", context.destroy)
        assert order._closed.wait(PATIENCE), "the device is not let go"
        results["calls after"] = _calls_after(context, pair)
    return results


def _calls_after(context: Any, pair: Any) -> str:
    """Whatever was lost: calls are refused at once."""
    if pair is None:
        return ""
    with pytest.raises(InvalidStateError):
        context.read_tensor(pair[0]).result(PATIENCE)
    return ""


def check_success(results: dict[str, Any]) -> None:
    errors = [error for error in results.values() if isinstance(error, Exception)]
    assert not errors and not results["lost"], (errors, results["why"])
    for name in ("read", "again"):
        assert_allclose(results[name], EXPECTED, rtol=1e-5)


def outcome(results: dict[str, Any]) -> str:
    """The outcome of each failed step, in a word."""
    said = []
    for name, result in results.items():
        if not isinstance(result, Exception):
            continue
        allowed = DOCUMENTED[name] + (InvalidStateError,) * results["lost"]
        assert type(result) in allowed or isinstance(result, allowed), (name, result)
        kind = "NotSupportedError" if isinstance(result, NotSupportedError) else None
        said.append(f"{name} {kind or type(result).__name__}")
    if results["lost"]:
        said.append("lost")
    if not said:
        check_success(results)
    else:
        # Data that was read is correct nevertheless.
        for name in ("read", "again"):
            if isinstance(results.get(name), np.ndarray) and "lost" not in said:
                assert_allclose(results[name], EXPECTED, rtol=1e-5)
    return ", ".join(said) or "nothing"


def measure(library: FaultyLibrary, call: str) -> list[str]:
    """The rows of the table for one call; each checks that nothing is left over."""
    library.disarm()
    check_success(life(library))
    places = [place for name, place in library.called if name == call]
    if not places:
        return [f"{call}: not called"]
    gc.collect()
    before = library.alive.copy()
    rows = []
    for place in places:
        for error in errors_of(call):
            library.arm(call, place, error)
            results = life(library)
            assert library.injected, (call, place, error)
            what = outcome(results)
            rows.append(f"{call} at {place}: {error}: {what}")
            for result in results.values():
                if isinstance(result, Exception):
                    # The errors of what was lost with the context say so.
                    text = results["why"] or str(result)
                    assert f"VK_ERROR_{error}" in text, (rows[-1], text)
                    result.__traceback__ = result.__cause__ = result.__context__ = None
            del results
            library.disarm()
            gc.collect()
            left = library.alive - before
            assert not left, f"{rows[-1]}: left are {sorted(left)}"
    # The next one works.
    check_success(life(library))
    gc.collect()
    assert library.alive == before
    return rows


@pytest.fixture
def software() -> None:
    software_profile("the table has the calls that software Vulkan gets")


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("call", ERRORS)
def test_a_call_that_fails(
    software: None, queued: None, library: FaultyLibrary, call: str, request: Any
) -> None:
    rows = measure(library, call)
    known = TABLE.read_text().splitlines() if TABLE.is_file() else []
    if request.config.option.update_golden:
        kept = [row for row in known if not row.startswith((f"{call} ", f"{call}:"))]
        order = {name: index for index, name in enumerate(ERRORS)}
        lines = sorted([*kept, *rows], key=lambda row: order[row.split(" ")[0].rstrip(":")])
        TABLE.write_text("\n".join(lines) + "\n")
        return
    assert rows == [row for row in known if row.startswith((f"{call} ", f"{call}:"))]


@pytest.mark.parametrize("call", ["vkCreateBuffer", "vkAllocateMemory", "vkBindBufferMemory"])
def test_a_failed_import_leaves_the_file_descriptor_to_the_caller(
    library: FaultyLibrary, physical: PhysicalDevice, call: str
) -> None:
    """Closed by both, it might be another descriptor by then."""
    driver = open_driver(physical)
    if "external_memory_fd" not in driver.profile.features:
        pytest.skip("no memory by file descriptor on this device")
    files = open_files()
    exported = driver.sharing.export_memory(driver.allocate(4096, exportable=True))
    library.fail_nth(call, 1, "UNKNOWN")
    with pytest.raises(DriverError, match="VK_ERROR_UNKNOWN"):
        driver.sharing.import_memory(exported)
    # Still open, and whole.
    twin = driver.sharing.import_memory(exported)
    with pytest.raises(OSError):
        os.close(exported.fd)
    del twin
    driver.close()
    assert not left_open(files)


def test_the_table_is_whole() -> None:
    """A row for every error code of every call at every step that makes it."""
    rows = [row.split(": ") for row in TABLE.read_text().splitlines()]
    assert {row[0].split(" ")[0] for row in rows} == ERRORS.keys()
    for call in ERRORS:
        mine = [row for row in rows if row[0].split(" ")[0] == call]
        if mine[0][1] == "not called":
            continue
        places = {row[0] for row in mine}
        assert [row[1] for row in mine] == [*errors_of(call)] * len(places), call


@pytest.mark.parametrize("call", ["vkQueueSubmit", "vkGetSemaphoreCounterValue"])
def test_direct_work_that_fails(
    software: None, library: FaultyLibrary, call: str
) -> None:
    """It is queued instead, or the loss is announced."""
    for name in ("write", "dispatch", "read", "compute", "fence"):
        for error in errors_of(call):
            library.place = "before"
            world = World(open_context("vulkan"))
            world.settle()
            library.place = "direct"
            library.arm(call, "direct", error)
            try:
                world.calls[name]()
                world.context.fence().wait(PATIENCE)
            except InvalidStateError as lost:
                assert error == "DEVICE_LOST", (name, error, lost)
            if library.injected and error == "DEVICE_LOST":
                assert "VK_ERROR_DEVICE_LOST" in world.context.lost.result(PATIENCE).message
            library.disarm()
            if not world.context.lost.done():
                world.all(9)
                world.compute(10)
            world.context.destroy()

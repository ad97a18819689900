"""Kernels by cooperative matrices are tested before graphs rely on them: on a device that computes
correctly, in the emulation, on one that doesn't, and on one that writes nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_over
from tests.support.driver_proxy import DriverProxy
from tests.support.matrices import SHAPES, flexible, shape
from tests.support.profiles import MATRICES2, stored_profile
from tests.support.spirv_validator import compiler2
from webnn_vk import MLContext, MLGraphBuilder, MLOperandDescriptor
from webnn_vk.codegen.store import ShaderStore
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import coopmat, coopmat2
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.driver.null.driver import NullDriver
from webnn_vk.runtime.driver_device import DriverDevice
from webnn_vk.runtime.storage import Miscompiles
from webnn_vk.support import warnings as library_warnings

NAME = "8x8x16, subgroups of 8"
LEFT_ALONE = "cooperative_matrix of .* is not used, because .* of a small product are wrong"
RNG = np.random.default_rng(7)
X, W = (RNG.uniform(-1, 1, s).astype(np.float16) for s in ((3, 40, 64), (64, 72)))
BIAS = RNG.uniform(-1, 1, 72).astype(np.float16)


class Matrices(DriverProxy):
    """The driver of a GPU that lists cooperative matrices: they are emulated. It counts the
    pipelines made for them."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        sizes, subgroup = SHAPES[NAME]
        self.profile = driver.profile.replace(
            cooperative_matrices=(shape(*sizes),), subgroup_size=subgroup,
            device_type="discrete", vendor_id=0x10DE,
        )
        self.made: list[Any] = []

    def pipelines(self, requests: Any) -> Any:
        self.made += [r for r in requests if r.name == "matmul_coopmat.comp.j2"]
        return self.driver.pipelines(requests)


class WrongMatrices(Matrices):
    """Its subgroups compute only half of their rows."""

    def pipelines(self, requests: Any) -> Any:
        self.made += [r for r in requests if r.name == "matmul_coopmat.comp.j2"]
        names = ["LX", "LY", "LZ", *(constant.name for constant in coopmat.CONSTANTS)]
        number = names.index("WM")

        def spoilt(request: Any) -> Any:
            if request.name != "matmul_coopmat.comp.j2":
                return request
            constants = dict(request.constants)
            assert constants[number] == (2).to_bytes(4, "little")
            constants[number] = (1).to_bytes(4, "little")
            return replace(request, constants=tuple(constants.items()))

        return self.driver.pipelines(list(map(spoilt, requests)))


class Flexible(Matrices):
    """The driver of a GPU that has workgroup matrices too."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.profile = self.profile.replace(
            flexible_matrices=flexible(16, 16, 16, 32), max_flexible_dimension=256
        )
        self.made2: list[Any] = []

    def pipelines(self, requests: Any) -> Any:
        self.made2 += [r for r in requests if r.name == "matmul_coopmat2.comp.j2"]
        return super().pipelines(requests)


class WrongFlexible(Flexible):
    """Its workgroups compute only half of their rows."""

    def pipelines(self, requests: Any) -> Any:
        return super().pipelines([self.spoilt(request) for request in requests])

    def spoilt(self, request: Any) -> Any:
        if request.name != "matmul_coopmat2.comp.j2":
            return request
        return _changed(request, coopmat2.CONSTANTS, "BM", 32, 16)


class AllWrong(WrongFlexible):
    """Its subgroups do not compute more either."""

    def spoilt(self, request: Any) -> Any:
        if request.name == "matmul_coopmat.comp.j2":
            return _changed(request, coopmat.CONSTANTS, "WM", 2, 1)
        return super().spoilt(request)


def _changed(request: Any, names: Any, name: str, before: int, after: int) -> Any:
    number = ["LX", "LY", "LZ", *(constant.name for constant in names)].index(name)
    constants = dict(request.constants)
    assert constants[number] == before.to_bytes(4, "little")
    constants[number] = after.to_bytes(4, "little")
    return replace(request, constants=tuple(constants.items()))


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_warnings, "_said", set())


@pytest.fixture
def opened(vulkan) -> Iterator[Callable[[type], tuple[MLContext, Any]]]:
    contexts = []

    def open_with(driver: type) -> tuple[MLContext, Any]:
        context, proxy = open_over(driver)
        contexts.append(context)
        return context, proxy

    yield open_with
    for context in contexts:
        context.destroy()


def _build(context: MLContext) -> Any:
    builder = MLGraphBuilder(context)
    x = builder.input("x", MLOperandDescriptor("float16", X.shape))
    product = builder.add(builder.matmul(x, builder.constant(W)), builder.constant(BIAS))
    return builder.build({"y": builder.relu(product)}).result(120)


def _check(context: MLContext, graph: Any) -> None:
    expected = np.maximum(X.astype(np.float32) @ W.astype(np.float32) + BIAS, 0)
    computed = context.compute(graph, {"x": X})["y"]
    np.testing.assert_allclose(computed.astype(np.float32), expected, rtol=2e-3, atol=2e-2)


def _kernels(graph: Any) -> list[str]:
    return [step.kernel for step in graph.report().steps]


def test_a_device_that_computes_rightly_is_tried_once(opened) -> None:
    context, driver = opened(Matrices)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = _build(context)
        # The graph's own kernel, with the bias, and the self-test's.
        assert len(driver.made) == 2
        second = _build(context)
    assert len(driver.made) == 3
    for graph in (first, second):
        assert _kernels(graph) == [coopmat.KERNEL]
        _check(context, graph)


def test_a_device_that_computes_wrongly_gets_other_kernels_and_says_so_once(opened) -> None:
    context, driver = opened(WrongMatrices)
    with pytest.warns(RuntimeWarning, match=LEFT_ALONE) as said:
        first = _build(context)
    assert len(said) == 1 and len(driver.made) == 1, "only the trial had such a kernel"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = _build(context)
    assert len(driver.made) == 1
    for graph in (first, second):
        assert _kernels(graph) == ["matmul_tiled"]
        _check(context, graph)


def test_matrices_of_workgroups_are_tried_once(opened) -> None:
    """Inside, at the edges, and with a remainder of steps."""
    context, driver = opened(Flexible)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = _build(context)
        # Those of two self-tests, and the graph's own, with the bias.
        assert (len(driver.made2), driver.made) == (3, [])
        second = _build(context)
    assert len(driver.made2) == 4
    for graph in (first, second):
        assert _kernels(graph) == [coopmat2.KERNEL]
        _check(context, graph)


@pytest.mark.parametrize("driver, kernel, features", [
    (WrongFlexible, coopmat.KERNEL, ["cooperative_matrix2"]),
    (AllWrong, "matmul_tiled", ["cooperative_matrix2", "cooperative_matrix"]),
])
def test_a_device_that_computes_wrongly_by_those_gets_the_next(
    opened, driver, kernel: str, features: list[str]
) -> None:
    """Subgroup matrices, which are then tested; or none."""
    context, proxy = opened(driver)
    with pytest.warns(RuntimeWarning, match="is not used") as said:
        first = _build(context)
    messages = [str(w.message).removeprefix("webnn_vk: ") for w in said]
    assert [message.partition(" of ")[0] for message in messages] == features
    made = len(proxy.made2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = _build(context)
    assert len(proxy.made2) == made
    for graph in (first, second):
        assert _kernels(graph) == [kernel]
        _check(context, graph)


def test_a_mask_switches_them_off(opened, monkeypatch) -> None:
    context, driver = opened(
        lambda driver: _masked(Matrices(driver))
    )
    graph = _build(context)
    assert _kernels(graph) == ["matmul_tiled"] and not driver.made
    _check(context, graph)


def _masked(driver: Matrices) -> Matrices:
    driver.profile = driver.profile.masked(["cooperative_matrix"])
    return driver


@pytest.mark.parametrize("name, subgroup, asks", [
    ("nvidia_ampere", 32, 0), ("amd_navi31", 64, 64),
])
def test_the_real_form_asks_for_its_subgroup_size(
    name: str, subgroup: int, asks: int
) -> None:
    """On a driver that runs nothing: pipelines are requested, and the self-test fails. Ampere has
    one size of subgroup, which needs no request."""
    driver = NullDriver(stored_profile(name))
    device = DriverDevice(driver, ShaderStore(None, pack=None))
    asked = []
    make = driver.pipelines
    driver.pipelines = lambda requests: asked.extend(requests) or make(requests)
    emit = Emitter()
    a, b = (Value(MLOperandDescriptor("float16", (128, 128)), name=n) for n in "ab")
    graph = Graph({"a": a, "b": b}, {"c": emit.matmul(a, b)}, tuple(emit.nodes))
    program, _ = compile_program(graph, Target(driver.profile))
    (step,) = program.dispatches
    assert step.kernel == coopmat.KERNEL
    with pytest.raises(Miscompiles, match="of a small product are wrong"):
        device.try_out(program)
    (request,) = asked
    assert request.subgroup_size == asks and request.full_subgroups
    constants = {i: int.from_bytes(data, "little") for i, data in request.constants}
    assert constants[0] == 4 * subgroup


def test_the_real_form_of_matrices_of_workgroups_is_tried() -> None:
    """On a driver that runs nothing."""
    compiler2()
    driver = NullDriver(stored_profile(MATRICES2))
    device = DriverDevice(driver, ShaderStore(None, pack=None))
    asked = []
    make = driver.pipelines
    driver.pipelines = lambda requests: asked.extend(requests) or make(requests)
    emit = Emitter()
    a, b = (Value(MLOperandDescriptor("float16", (128, 128)), name=n) for n in "ab")
    graph = Graph({"a": a, "b": b}, {"c": emit.matmul(a, b)}, tuple(emit.nodes))
    program, _ = compile_program(graph, Target(driver.profile))
    (step,) = program.dispatches
    assert step.kernel == coopmat2.KERNEL
    with pytest.raises(Miscompiles, match="of a small product are wrong") as caught:
        device.try_out(program)
    assert caught.value.feature == "cooperative_matrix2" and asked
    for request in asked:
        assert (request.subgroup_size, request.full_subgroups) == (0, False)
        constants = {i: int.from_bytes(data, "little") for i, data in request.constants}
        assert constants[0] == 128

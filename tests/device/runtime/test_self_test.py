"""Kernels by cooperative matrices are tested before graphs rely on them: on a device that computes
correctly, in the emulation, on one that doesn't, and on one that writes nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_over
from tests.support.discriminating import assert_allclose
from tests.support.driver_proxy import DriverProxy
from tests.support.matrices import SHAPES, shape
from tests.support.profiles import stored_profile
from webnn_vk import MLContext, MLGraphBuilder, MLOperandDescriptor
from webnn_vk.codegen.store import ShaderStore
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import coopmat
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.driver.null.driver import NullDriver
from webnn_vk.runtime.driver_device import DriverDevice
from webnn_vk.runtime.storage import Miscompiles
from webnn_vk.support import warnings as library_warnings

NAME = "8x8x16, subgroups of 8"
LEFT_ALONE = "cooperative_matrix of .* is not used, because .* of a small product are wrong"
X, W, BIAS = (
    np.random.default_rng(shape).uniform(-1, 1, shape).astype(np.float16)
    for shape in ((3, 40, 64), (64, 72), (72,))
)


class Matrices(DriverProxy):
    """The driver of a GPU that lists cooperative matrices: they are emulated. It counts the
    pipelines made for them."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        sizes, subgroup = SHAPES[NAME]
        own = driver.profile.masked(["cooperative_matrix"])
        self.profile = own.replace(
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


@pytest.fixture(autouse=True)
def _separate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test says what it has to say, knows of no test that passed before, and makes a pipeline
    only when it is needed."""
    monkeypatch.setattr(library_warnings, "_said", set())
    monkeypatch.setenv("WEBNN_VK_CACHE", str(tmp_path))
    monkeypatch.setattr(DriverDevice, "planning", lambda self: nullcontext())


@pytest.fixture
def opened(vulkan) -> Iterator[Callable[..., tuple[MLContext, Any]]]:
    contexts = []

    def open_with(driver: type, **settings: Any) -> tuple[MLContext, Any]:
        context, proxy = open_over(driver, **settings)
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
    assert_allclose(computed.astype(np.float32), expected, rtol=2e-3, atol=2e-2)


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


def test_a_test_that_passed_is_not_repeated_by_later_processes(opened, tmp_path) -> None:
    context, first = opened(Matrices)
    _build(context)
    assert len(first.made) == 2
    context, second = opened(Matrices)
    graph = _build(context)
    assert len(second.made) == 1, "only the graph's own kernel"
    _check(context, graph)
    (mark,) = tmp_path.glob("spirv/*.passed")
    mark.write_bytes(mark.read_bytes()[:-1])
    damaged, third = opened(Matrices)
    _check(damaged, _build(damaged))
    assert len(third.made) == 2
    assert len(list(tmp_path.glob("spirv/*.passed"))) == 1


class UpdatedMatrices(Matrices):
    """Another version of the driver."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.profile = self.profile.replace(driver_version="next")


def test_another_driver_is_tried_again(opened, tmp_path) -> None:
    for driver in (Matrices, UpdatedMatrices):
        context, proxy = opened(driver)
        _build(context)
        assert len(proxy.made) == 2
    assert len(list(tmp_path.glob("spirv/*.passed"))) == 2


def test_a_test_that_failed_is_repeated(opened, tmp_path) -> None:
    for _ in range(2):
        context, driver = opened(WrongMatrices)
        library_warnings._said.clear()
        with pytest.warns(RuntimeWarning, match=LEFT_ALONE):
            _build(context)
        assert len(driver.made) == 1
    assert not list(tmp_path.glob("spirv/*.passed"))


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

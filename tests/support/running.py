"""Runs the plan of one node on the Vulkan device, without context and program."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support import kernels as support_kernels
from tests.support.drivers import pipeline_of
from tests.support.kernels import compile_spec, driver
from webnn_vk.compiler import kernels
from webnn_vk.compiler.ir import Emitter, Node, Value
from webnn_vk.compiler.kernels import KernelNode, KernelTarget, Schedule, Scratch, solver_of
from webnn_vk.compiler.kernels.choose import ranked
from webnn_vk.compiler.kernels.dispatch import Dispatch, Packed
from webnn_vk.compiler.kernels.node import writes
from webnn_vk.compiler.kernels.schedule import NOTHING_TUNED, Tuned, problem_class
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import padded

#: The features that the types of elements depend on.
TYPE_FEATURES = ("float16", "int8", "int16", "int64")

_GUARD = 64
_POISON = 0xCD
_compiled = functools.cache(compile_spec)


def device_profile(masked: bool = False, **limits: Any) -> DeviceProfile:
    """The profile of the device that `run` uses, with or without the types' native features and
    with other limits."""
    profile = driver().profile.masked(TYPE_FEATURES if masked else ())
    return profile.replace(**limits)


def promise_exact_conversions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles modules meanwhile for a device that promises exact conversions of float16. lavapipe
    doesn't promise to keep denormal numbers, but it does: its modules lack that mode here."""
    if "denorm_preserve_f16" in device_profile().features:
        return  # GPUs may flush denormals where modules don't ask for them
    add = support_kernels.add_float_controls
    monkeypatch.setattr(
        support_kernels, "add_float_controls",
        lambda module, features: add(module, features - {"denorm_preserve_f16"}),
    )


def software_profile(why: str = "only software Vulkan takes these kernels") -> DeviceProfile:
    """The profile of the device that `run` uses. On a GPU the test is skipped, counted in the
    summary with the reason."""
    profile = device_profile()
    if not profile.is_software:
        pytest.skip(why)
    return profile


def node_of(operator: str, *operands: Any, **arguments: Any) -> tuple[Node, dict]:
    """A node and its operands' arrays by value. A list of arrays is a sequence operand; a
    descriptor is an operand without an array (to plan, not to run). Optional operands are passed by
    keyword."""
    arrays: dict[Value, np.ndarray] = {}

    def value(array: Any) -> Any:
        if isinstance(array, list) and array and isinstance(array[0], np.ndarray):
            return [value(a) for a in array]
        if isinstance(array, MLOperandDescriptor):
            return Value(array, name="x")
        if not isinstance(array, np.ndarray):
            return array  # an argument
        given = Emitter().constant(array)
        arrays[given] = given.data
        return given

    emit = Emitter()
    given = {name: value(argument) for name, argument in arguments.items()}
    getattr(emit, operator)(*map(value, operands), **given)
    return emit.nodes[-1], arrays


def _kernel_node(node: Node | KernelNode) -> KernelNode:
    return KernelNode.of(node) if isinstance(node, Node) else node


def schedules_of(node: Node | KernelNode, profile: DeviceProfile) -> Sequence[Schedule]:
    """All schedules by which a device can compute a node."""
    solver, problem = solver_of(_kernel_node(node))
    return solver.candidates(problem, profile)


def tuned_to(
    kernel: str, node: Node | KernelNode, profile: DeviceProfile
) -> dict[tuple[str, str], Schedule]:
    """What tuning stores where a kernel is the fastest for a node: of the kernel's schedules, the
    one that the rules take if there are no others."""
    solver, problem = solver_of(_kernel_node(node))
    made = [s for s in solver.candidates(problem, profile) if s.kernel == kernel]
    assert made, f"the device has no {kernel} for {node}"
    best = next(ranked(solver.name, made, problem, profile))
    return {(solver.name, problem_class(problem)): best}


def plan(
    node: Node | KernelNode, profile: DeviceProfile, tuned: Tuned = NOTHING_TUNED
) -> list[Dispatch]:
    """The dispatches that compute a node by itself; raises Unsupported if the device can't run it.
    """
    kernel = _kernel_node(node)
    return [*kernels.plan(kernel, KernelTarget(profile, tuned)).dispatches]


def _by(schedule: Schedule, node: Node | KernelNode, profile: DeviceProfile) -> list[Dispatch]:
    kernel = _kernel_node(node)
    solver, problem = solver_of(kernel)
    return solver.lowered(kernel, problem, schedule, profile)


def run(
    node: Node | KernelNode,
    arrays: Mapping[Value, np.ndarray],
    profile: DeviceProfile,
    schedule: Schedule | None = None,
) -> list[np.ndarray]:
    """The arrays that a node's plan writes, or its lowering by a ``schedule``, after packing
    constants. Memory is poisoned first; a write past a value's padding or past a scratch is an
    error."""
    from webnn_vk.driver import BarrierCommand, DispatchCommand

    device = driver()
    held: dict[Any, Any] = {}
    blocks = []

    def memory(target: Value | Scratch | Packed) -> tuple[Any, int]:
        scratch = isinstance(target, Scratch)
        size = padded(target.size if scratch else target.descriptor.byte_length)
        if target not in held:
            held[target] = device.allocate(size + _GUARD, host=True)
            held[target].mapped[: size + _GUARD] = bytes([_POISON]) * (size + _GUARD)
            if target in arrays:
                data = arrays[target].tobytes()
                held[target].mapped[: len(data)] = data
            held[target].flush()
        return held[target], size

    commands: list[Any] = []
    planned = plan(node, profile) if schedule is None else _by(schedule, node, profile)
    for dispatch in (*_packing(planned, profile), *planned):
        spec = dispatch.spec
        assert spec.features <= profile.features
        bindings = []
        for binding in dispatch.bindings:
            where, size = memory(binding.value)
            length = size - binding.offset if binding.size is None else binding.size
            assert 0 < length <= size - binding.offset
            if len(bindings) not in dict(spec.texels):
                assert length <= profile.max_storage_buffer_range
            assert binding.offset % profile.min_storage_buffer_offset_alignment == 0
            # The driver would drop a write beyond the binding.
            beyond = _GUARD if binding.offset + length == size else 0
            bindings.append((where, binding.offset, length + beyond))
        block = spec.pack_params(dispatch.params)
        if spec.param_storage == "buffer":
            where = device.allocate(len(block), host=True)
            where.mapped[: len(block)] = block
            where.flush()
            blocks.append(where)
            bindings.append((where, 0, len(block)))
        push = block if spec.param_storage == "push" else b""
        ids, data = spec.pack_constants(dispatch.constants)
        pipeline = pipeline_of(
            device,
            _compiled(spec),
            binding_count=spec.binding_count,
            push_size=len(push),
            constants=tuple((i, data[4 * n : 4 * n + 4]) for n, i in enumerate(ids)),
            name=spec.template,
            subgroup_size=spec.subgroup_size(
                [(i, data[4 * n : 4 * n + 4]) for n, i in enumerate(ids)]
            ),
            texels=spec.texels,
        )
        commands += [DispatchCommand(pipeline, tuple(bindings), push, dispatch.groups)]
        commands += [BarrierCommand()]
    recording = device.record(commands)
    assert device.wait(device.submit([recording]), timeout=600)
    recording.free()
    for target, where in held.items():
        where.invalidate()
        _, size = memory(target)
        guard = bytes(where.mapped[size : size + _GUARD])
        assert guard == bytes([_POISON]) * _GUARD, "written past the end"
    results = []
    for value in writes(node):
        raw = bytes(held[value].mapped[: value.descriptor.byte_length])
        results.append(np.frombuffer(raw, value.descriptor.numpy_dtype).reshape(value.shape))
    for where in (*held.values(), *blocks):
        where.free()
    return results


def _packing(planned: Iterable[Dispatch], profile: DeviceProfile) -> Iterator[Dispatch]:
    """The dispatches that pack constants for these."""
    values = (binding.value for dispatch in planned for binding in dispatch.bindings)
    for packed in dict.fromkeys(value for value in values if isinstance(value, Packed)):
        yield from packed.packing.pack(packed, profile)


def assert_same_bits(node: Node | KernelNode, arrays: Mapping, profile: DeviceProfile) -> None:
    """The device's outputs equal the reference's in every bit."""
    for own, expected in zip(run(node, arrays, profile), node.evaluate(arrays.get), strict=True):
        assert own.shape == expected.shape
        assert own.tobytes() == expected.tobytes(), f"{node.title} {node.arguments}"


def random_bits(rng: np.random.Generator, data_type: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of arbitrary bits, including NaN payloads and denormals."""
    dtype = np.dtype(data_type)
    count = int(np.prod(shape)) * dtype.itemsize
    return rng.integers(0, 256, count, np.uint8).view(dtype).reshape(shape)

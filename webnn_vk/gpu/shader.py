"""Shader modules and compute pipelines."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from typing import Any

from webnn_vk.codegen import GlslError, KernelSpec
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.glsl import CompilerUnavailable, Source
from webnn_vk.codegen.store import ShaderUnavailable
from webnn_vk.driver import PipelineRequest
from webnn_vk.support.errors import NotSupportedError, sanitize

from .device_state import DeviceState
from .objects import GPUObject, named, own, shown
from .reflection import Reflection, reflect

_FORMATS = {"float": "<f", "int": "<i", "uint": "<I", "bool": "<I"}


class GPUShaderModule(GPUObject):
    """A compute shader. ``entry_points``, ``bindings`` (binding → "r", "w" or "rw") and
    ``push_constant_size`` (bytes) are read from its SPIR-V."""

    def __init__(self, device: DeviceState, code: Any, label: str) -> None:
        what = named("create_shader_module", label)
        super().__init__(device, label)
        self.spec: KernelSpec | None = code if isinstance(code, KernelSpec) else None
        self._spirv = _spirv(device, code, what, label)
        try:
            self._about: Reflection = reflect(self._spirv)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None

    @property
    def entry_points(self) -> tuple[str, ...]:
        """Names of entry points."""
        return self._about.entry_points

    @property
    def bindings(self) -> dict[int, str]:
        """Binding → access."""
        return dict(self._about.bindings)

    @property
    def push_constant_size(self) -> int:
        """In bytes."""
        return self._about.push_size

    @property
    def spirv(self) -> bytes:
        """The module as bytes."""
        return self._spirv

    def __repr__(self) -> str:
        return f"<GPUShaderModule{shown(self._label)} bindings {self.bindings}>"


class GPUComputePipeline(GPUObject):
    """A shader with its specialisation constants, compiled. Buffers are bound at set 0."""

    def __init__(
        self,
        device: DeviceState,
        module: GPUShaderModule,
        entry_point: str,
        constants: Mapping[Any, Any],
        label: str,
    ) -> None:
        what = named("create_compute_pipeline", label)
        super().__init__(device, label)
        about = own(module, GPUShaderModule, device, what)._about
        if entry_point not in about.entry_points:
            raise ValueError(
                f"{what}: no entry point {entry_point!r}; the module has "
                f"{', '.join(about.entry_points)}"
            )
        self._module = module
        given = _constants(module, constants, what)
        if module.spec is not None:
            _check_needed(module.spec, given, what)
        _check_workgroup(device, about, {i: v for i, (_, v) in given.items()}, what)
        request = PipelineRequest(
            module._spirv,
            about.binding_count,
            about.push_size,
            tuple((i, data) for i, (data, _) in sorted(given.items())),
            label or module._label or "user shader",
            entry_point=entry_point,
        )
        with device.translated(what):
            self._native = device.device.driver.pipelines([request])[0]

    def __repr__(self) -> str:
        return f"<GPUComputePipeline{shown(self._label)} of {self._module!r}>"


def _spirv(device: DeviceState, code: Any, what: str, label: str) -> bytes:
    if isinstance(code, KernelSpec):
        missing = code.features - device.device.profile.features
        if missing:
            raise NotSupportedError(f"{what}: the device has no {', '.join(sorted(missing))}")
        try:
            return device.device.shaders.get([code])[0]
        except GlslError as error:
            raise ValueError(f"{what}: {error}") from None
        except ShaderUnavailable as error:
            raise NotSupportedError(f"{what}: {error}") from None
    if isinstance(code, str):
        return _compile(device, code, what, label)
    if isinstance(code, (bytes, bytearray, memoryview)):
        return bytes(code)
    raise TypeError(
        f"{what}: code is GLSL (str), SPIR-V (bytes) or a KernelSpec, not {type(code).__name__}"
    )


def _compile(device: DeviceState, text: str, what: str, label: str) -> bytes:
    compiler = find_compiler(device.settings.glslang)
    if compiler is None:
        raise NotSupportedError(
            f"{what}: no GLSL compiler on this machine (Debian/Ubuntu: apt install "
            "glslang-tools), or WEBNN_VK_GLSLANG=none; SPIR-V is accepted"
        )
    try:
        (result,) = compiler.compile([Source(text, sanitize(label) or "shader")])
    except CompilerUnavailable as error:
        raise NotSupportedError(f"{what}: the GLSL compiler does not work: {error}") from None
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    if isinstance(result, GlslError):
        raise ValueError(f"{what}: {result}")
    return result


def _constants(
    module: GPUShaderModule, constants: Mapping[Any, Any], what: str
) -> dict[int, tuple[bytes, Any]]:
    """id → (4 bytes, value). Names come from the module's KernelSpec, if it has one."""
    if not isinstance(constants, Mapping):
        raise TypeError(f"{what}: constants map ids to numbers, not {type(constants).__name__}")
    names = module.spec.constant_ids if module.spec is not None else {}
    kinds = module._about.constants
    given = {}
    for key, value in constants.items():
        identifier = names.get(key, key)
        # A KernelSpec may have constants that its text doesn't use.
        kind = kinds.get(identifier) or ("uint" if key in names else None)
        if kind not in _FORMATS:
            known = ", ".join([*map(str, kinds), *names])
            raise ValueError(
                f"{what}: no 32-bit specialisation constant {key!r}; the module has "
                f"{known or 'none'}"
            )
        try:
            number = float(value) if kind == "float" else int(value)
            if kind != "float" and number != value:
                raise ValueError(f"{value!r} is no integer")
            given[identifier] = struct.pack(_FORMATS[kind], number), number
        except (struct.error, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"{what}: constant {key!r} ({kind}): {error}") from None
    return given


def _check_needed(spec: KernelSpec, given: Mapping[int, Any], what: str) -> None:
    """Check that the constants without a sensible default are given: without them a workgroup would
    have one invocation, or a buffer in several bindings would have another size."""
    portions = [f"PORTION_{b.name}" for b in spec.buffers if b.portions > 1]
    missing = [name for name in ("LX", *portions) if spec.constant_ids[name] not in given]
    if missing:
        raise ValueError(
            f"{what}: {spec.template} needs the constants {', '.join(missing)} (LX, LY and LZ are "
            'the workgroup\'s size: constants={"LX": 64} for example)'
        )


def _check_workgroup(
    device: DeviceState, about: Reflection, given: Mapping[int, int], what: str
) -> None:
    profile = device.device.profile
    size = about.workgroup_size(given)
    if (
        not all(1 <= n <= most for n, most in zip(size, profile.max_workgroup_size, strict=False))
        or prod(size) > profile.max_workgroup_invocations
    ):
        raise ValueError(
            f"{what}: a workgroup of {size}; the device runs at most "
            f"{profile.max_workgroup_size} and {profile.max_workgroup_invocations} invocations"
        )

"""Kernels for tests of the code generator: templates given as text, run on any Vulkan device."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from tests.support.drivers import pipeline_of, require_vulkan
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.glsl import Source
from webnn_vk.codegen.render import environment, render
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.codegen.spirv import add_float_controls, strip
from webnn_vk.codegen.template_files import SEARCH_PATH, forget

PRELUDE = '{% include "lib/prelude.glsl.j2" %}\n'

#: Reads element i of `a` and writes it to `out`; with buffers of width 4 also by vectors.
COPY = PRELUDE + """\
void main() {
  uint i = invocation_index();
  if (i >= P.n) return;
{% if vectors %}
  store4_out(i, load4_a(i));
{% else %}
  store_out(i, load_a(i));
{% endif %}
}
"""


@contextmanager
def templates(**texts: str) -> Iterator[None]:
    """Adds templates `<name>.comp.j2` to the code generator's inside a `with` block."""
    with TemporaryDirectory() as folder:
        files = {f"{name}.comp.j2": text for name, text in texts.items()}
        for name, text in files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        # Before the library's, whose templates they may replace.
        SEARCH_PATH.insert(0, folder)
        _forget(files)
        try:
            yield
        finally:
            SEARCH_PATH.remove(folder)
            _forget(files)


def _forget(names: Collection[str]) -> None:
    """Forget rendered texts, hashes, and the parsed templates of these names."""
    parsed = environment().cache
    for key in [key for key in parsed if key[1] in names]:
        del parsed[key]
    render.cache_clear()
    forget()


def compile_spec(spec: KernelSpec) -> bytes:
    """The module of a spec, without shader archive and cache. Skips the test without a compiler."""
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no GLSL compiler on this machine")
    (result,) = compiler.compile([Source(render(spec), spec.template)])
    if isinstance(result, Exception):
        raise result
    return add_float_controls(strip(result), spec.features)


def validate(spirv: bytes) -> None:
    """Fails unless spirv-val accepts the module."""
    program = shutil.which("spirv-val")
    if program is None:
        pytest.skip("no spirv-val on this machine")
    done = subprocess.run(
        [program, "--target-env", "vulkan1.2", "-"], input=spirv, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()


@functools.cache
def driver() -> Any:
    """An opened device, software ones included. Skips the test if there is none."""
    require_vulkan()
    from webnn_vk.driver.vulkan.devices import choose_device, list_devices
    from webnn_vk.driver.vulkan.driver import open_driver

    devices = list_devices()
    index = choose_device([device.profile for device in devices], override="vulkan")
    return open_driver(devices[index])


def run(
    spec: KernelSpec,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    count: int,
    params: Mapping[str, Any] | None = None,
    constants: Mapping[str, int] | None = None,
    portions: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, np.ndarray]:
    """Runs `count` invocations; returns the outputs, which start with the given contents. portions:
    the byte offsets at which the portions of a buffer start."""
    from webnn_vk.driver import DispatchCommand

    device = driver()
    constants = {"LX": 64, **(constants or {})}
    arrays = {**inputs, **outputs}
    held, bindings = {}, []
    for buffer in spec.buffers:
        data = np.ascontiguousarray(arrays[buffer.name])
        size = -(-data.nbytes // 16) * 16
        held[buffer.name] = memory = device.allocate(size, host=True)
        memory.mapped[: data.nbytes] = data.tobytes()
        memory.flush()
        starts = [*(portions or {}).get(buffer.name, [0]), size]
        assert len(starts) == buffer.portions + 1
        bindings += [(memory, a, b - a) for a, b in zip(starts, starts[1:], strict=False)]
    block = spec.pack_params(params if params is not None else {"n": count})
    if spec.param_storage == "buffer":
        held["P"] = memory = device.allocate(len(block), host=True)
        memory.mapped[: len(block)] = block
        memory.flush()
        bindings.append((memory, 0, len(block)))
    ids, values = spec.pack_constants(constants)
    pipeline = pipeline_of(
        device,
        compile_spec(spec),
        binding_count=spec.binding_count,
        push_size=len(block) if spec.param_storage == "push" else 0,
        constants=tuple((i, values[4 * n : 4 * n + 4]) for n, i in enumerate(ids)),
        name=spec.template,
        texels=spec.texels,
    )
    push = block if spec.param_storage == "push" else b""
    groups = (-(-count // constants["LX"]), 1, 1)
    recording = device.record([DispatchCommand(pipeline, tuple(bindings), push, groups)])
    assert device.wait(device.submit([recording]), timeout=60)
    results = {}
    for name, array in outputs.items():
        held[name].invalidate()
        raw = bytes(held[name].mapped[: array.nbytes])
        results[name] = np.frombuffer(raw, array.dtype).reshape(array.shape)
    recording.free()
    for memory in held.values():
        memory.free()
    return results

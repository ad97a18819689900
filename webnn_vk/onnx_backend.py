"""ONNX's backend interface (``onnx.backend.base``) as module functions.

``prepare(model).run(inputs)``, ``run_model``, ``run_node``, ``supports_device``. ONNX knows the
devices "CPU" and "CUDA" only: "CPU" stands for the device that ``WEBNN_VK_DEVICE`` picks. Inputs
whose values decide shapes, axes or branches are taken from the feeds, double is computed in
float32, bfloat16 too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper
from onnx.backend.base import BackendRep, namedtupledict

from .api.context import MLContext
from .api.navigator import ml
from .onnx import Session
from .support import environment

__all__ = ["is_compatible", "prepare", "run_model", "run_node", "supports_device"]


class PreparedModel(BackendRep):
    """A model that ``run`` compiles for the shapes it is given."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """The outputs, a named tuple of arrays, for a sequence or mapping of arrays."""
        names = [x.name for x in self.session.get_inputs()]
        if isinstance(inputs, Mapping):
            feeds = dict(inputs)
        else:
            given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            if len(given) > len(names):
                raise ValueError(f"{len(given)} inputs are given, the model has {len(names)}")
            feeds = dict(zip(names, given, strict=False))
        outputs = [x.name for x in self.session.get_outputs()]
        results = self.session.run(None, feeds)
        return namedtupledict("Outputs", outputs)(*results)


def supports_device(device: str) -> bool:
    """Whether it is "CPU" (with or without an index)."""
    return device.split(":")[0].upper() == "CPU"


def is_compatible(model: ModelProto, device: str = "CPU", **options: Any) -> bool:
    """Whether the device is known; what a model needs shows with its inputs' shapes."""
    return supports_device(device)


def prepare(model: ModelProto, device: str = "CPU", **options: Any) -> PreparedModel:
    """A model ready to run. ValueError for another device or an invalid model."""
    _check(device)
    onnx.checker.check_model(model)
    return PreparedModel(Session(model, _context(), narrow_double=True))


def run_model(model: ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> Any:
    """The outputs of a model for a sequence or mapping of arrays."""
    return prepare(model, device, **options).run(inputs)


def run_node(
    node: NodeProto,
    inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray],
    device: str = "CPU",
    outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
    **options: Any,
) -> Any:
    """The outputs of a single node. ``outputs_info`` gives the outputs' types and shapes where
    they differ from the first input's."""
    _check(device)
    names = [n for n in node.input if n]
    feeds = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
    version = options.get("opset_version") or onnx.defs.onnx_opset_version()
    given = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.asarray(x).dtype), np.asarray(x).shape
        )
        for name, x in feeds.items()
    ]
    made = []
    for i, name in enumerate(n for n in node.output if n):
        if outputs_info:
            dtype, shape = outputs_info[i]
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            made.append(helper.make_tensor_value_info(name, kind, shape))
        else:
            made.append(onnx.ValueInfoProto(name=name))
    graph = helper.make_graph([node], node.op_type or "node", given, made)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(node.domain, version if not node.domain else 1)]
    )
    return PreparedModel(Session(model, _context(), narrow_double=True)).run(feeds)


def _check(device: str) -> None:
    if not supports_device(device):
        raise ValueError(f"device {device!r}: only CPU, which stands for WEBNN_VK_DEVICE's")


def _context() -> MLContext:
    context = _opened(*_wanted())
    if context.lost.done():
        _opened.cache_clear()
        context = _opened(*_wanted())
    return context


def _wanted() -> tuple[str | None, str | None, int]:
    """The device, engine and process: where one differs, another context is needed."""
    engine = environment.text("WEBNN_VK_CPU_ENGINE")
    return environment.text("WEBNN_VK_DEVICE"), engine, os.getpid()


@lru_cache(maxsize=1)
def _opened(device: str | None, engine: str | None, process: int) -> MLContext:
    return ml.create_context().result()



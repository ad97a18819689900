"""What the commands that run a model share: options, the model opened with its inputs, tensors."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from webnn_vk.compiler.types.data_types import MLTensorDescriptor
from webnn_vk.profiler.pictures import PassPictures, Picture
from webnn_vk.runtime.context_state import context_state

from . import ToolError
from .devices import open_context
from .inputs import Given, ImageScale, feeds, named, read_inputs
from .models import OpenedModel, open_model

if TYPE_CHECKING:
    from webnn_vk.api.context import MLContext


@dataclass(frozen=True)
class Options:
    """What every command on a model takes."""

    model: str
    device: str | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: Sequence[str] = ()
    seed: int = 0
    scale: ImageScale = ImageScale()
    json: bool = False
    outputs: Sequence[str] | None = None


@dataclass
class Ready:
    """A model on a context with what to run it on. ``build_seconds``: opening the model, building
    included. ``passes``: pictures before and after each pass, where they were asked for."""

    context: MLContext
    model: OpenedModel
    feeds: dict[str, np.ndarray]
    build_seconds: float
    passes: list[tuple[Picture, Picture]] = field(default_factory=list)

    @property
    def device(self) -> str:
        """The device in words."""
        return str(self.context.device_info)

    def memory(self) -> int:
        """Bytes of tensors, weights and intermediates on the device."""
        return context_state(self.context).device.memory_in_use()


@contextmanager
def ready(options: Options, watch: bool = False) -> Iterator[Ready]:
    """The model opened on its device, with inputs; ``watch``: with pictures of the passes.
    ``ToolError`` where that fails."""
    given = read_inputs(options.inputs)
    with open_context(options.device) as context:
        start = time.perf_counter()
        values = {g.name: g.array for g in given if g.name is not None and g.array is not None}
        passes: list[tuple[Picture, Picture]] = []
        if watch:
            with PassPictures(context_state(context)) as seen:
                model = open_as_given(options, context, values, given)
            passes = seen.all()
        else:
            model = open_as_given(options, context, values, given)
        seconds = time.perf_counter() - start
        by_name = named(given, list(model.ports))
        data = feeds(model, by_name, options.seed, options.scale)
        yield Ready(context, model, data, seconds, passes)


def open_as_given(
    options: Options, context: MLContext, values: Mapping[str, Any], given: Sequence[Given] = ()
) -> OpenedModel:
    """``open_model`` with the shapes of arrays that are given without a name, too; one number
    stands for an array of any shape. ``ToolError`` for a model that can't be taken."""
    shapes = dict(options.shapes)
    if any(g.name is None and g.array is not None and g.array.ndim for g in given):
        names = model_inputs(options.model)
        if names:
            values = {n: g.array for n, g in named(given, names).items() if g.array is not None}
    model = open_model(options.model, context, shapes, values, options.outputs)
    if model.assumed:
        print(f"webnn-vk: {model.assumed}", file=sys.stderr)
    return model


def model_inputs(model: str) -> list[str]:
    """The names of a model's inputs, in its order; none for a saved graph, whose shapes are
    fixed."""
    from .models import kind_of, onnx_package

    kind = kind_of(model)
    try:
        if kind == "onnx":
            onnx_package()
            from webnn_vk.onnx.reading import read_model

            return list(read_model(model).inputs)
        if kind == "webnn":
            from webnn_vk.webnn_file.text import parse

            with open(model, encoding="utf-8", errors="replace") as file:
                document = parse(file.read())
            names = [d.name for d in document.inputs]
            return [document.titles.get(("input", n), n) for n in names]
    except (OSError, ValueError) as error:
        raise ToolError(f"{model}: {error}") from None
    return []


class Tensors:
    """Tensors for a graph's inputs and outputs, for runs without allocation."""

    def __init__(self, context: Any, graph: Any) -> None:
        self.context, self.graph = context, graph

        def made(descriptors: Mapping[str, Any], **access: bool) -> dict[str, Any]:
            return {
                name: context.create_tensor(
                    MLTensorDescriptor(d.data_type, d.shape, **access)
                ).result()
                for name, d in descriptors.items()
            }

        self.inputs = made(graph.inputs, writable=True)
        self.outputs = made(graph.outputs, readable=True)

    def write(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Queue the writing of the inputs."""
        for name, tensor in self.inputs.items():
            self.context.write_tensor(tensor, feeds[name])

    def dispatch(self) -> None:
        """Queue one run."""
        self.context.dispatch(self.graph, self.inputs, self.outputs)

    def read(self) -> dict[str, np.ndarray]:
        """The outputs, when all before is done."""
        reads = {name: self.context.read_tensor(t) for name, t in self.outputs.items()}
        return {name: promise.result() for name, promise in reads.items()}

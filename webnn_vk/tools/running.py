"""What the commands that run a model share: options, the model opened with its inputs, tensors."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from webnn_vk.compiler.types.data_types import MLTensorDescriptor
from webnn_vk.profiler.pictures import PassPictures, Picture
from webnn_vk.runtime.context_state import context_state

from .devices import open_context
from .inputs import Given, ImageScale, feeds, named
from .models import OpenedModel, open_model

if TYPE_CHECKING:
    from webnn_vk.api.context import MLContext


@dataclass(frozen=True)
class Options:
    """What every command on a model takes."""

    model: str
    device: str | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: Sequence[Given] = ()
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
    with open_context(options.device) as context:
        start = time.perf_counter()
        seen = PassPictures(context_state(context))
        with seen if watch else nullcontext():
            model = open_as_given(options, context)
        seconds = time.perf_counter() - start
        by_name = named(options.inputs, list(model.ports))
        data = feeds(model.graph.inputs, by_name, options.seed, options.scale)
        yield Ready(context, model, data, seconds, seen.all())


def open_as_given(options: Options, context: MLContext) -> OpenedModel:
    """``open_model`` with these options; says on stderr what was assumed of shapes. ``ToolError``
    for a model that can't be used."""
    model = open_model(
        options.model, context, options.shapes, options.inputs, options.outputs
    )
    if model.assumed:
        print(f"webnn-vk: {model.assumed}", file=sys.stderr)
    return model


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

"""Shared by commands on a model: options, the opened model with its inputs, tensors."""

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
    """The options of all commands on models."""

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
    """A model on a context with its inputs. ``build_seconds``: the time to open and build the
    model; ``passes``: pictures before and after each pass, if requested."""

    context: MLContext
    model: OpenedModel
    feeds: dict[str, np.ndarray]
    build_seconds: float
    passes: list[tuple[Picture, Picture]] = field(default_factory=list)

    @property
    def device(self) -> str:
        """The device as text."""
        return str(self.context.device_info)

    def memory(self) -> int:
        """Bytes of tensors, weights and intermediates on the device."""
        return context_state(self.context).device.memory_in_use()


@contextmanager
def ready(options: Options, with_passes: bool = False) -> Iterator[Ready]:
    """Open the model on its device, with inputs. ``with_passes``: with pictures of the passes.
    ``ToolError`` where that fails."""
    with open_context(options.device) as context:
        start = time.perf_counter()
        seen = PassPictures(context_state(context))
        with seen if with_passes else nullcontext():
            model = open_as_given(options, context)
        seconds = time.perf_counter() - start
        by_name = named(options.inputs, list(model.ports))
        data = feeds(model.graph.inputs, by_name, options.seed, options.scale)
        yield Ready(context, model, data, seconds, seen.all())


def open_as_given(options: Options, context: MLContext) -> OpenedModel:
    """``open_model`` with these options. Prints assumptions about shapes on stderr. ``ToolError``
    for an unusable model."""
    model = open_model(
        options.model, context, options.shapes, options.inputs, options.outputs
    )
    if model.assumed:
        print(f"webnn-vk: {model.assumed}", file=sys.stderr)
    return model


class Tensors:
    """Tensors for a graph's inputs and outputs, so that runs allocate nothing."""

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
        """Queue writes of the inputs."""
        for name, tensor in self.inputs.items():
            self.context.write_tensor(tensor, feeds[name])

    def dispatch(self) -> None:
        """Queue one run."""
        self.context.dispatch(self.graph, self.inputs, self.outputs)

    def read(self) -> dict[str, np.ndarray]:
        """Wait for the outputs."""
        reads = {name: self.context.read_tensor(t) for name, t in self.outputs.items()}
        return {name: promise.result() for name, promise in reads.items()}

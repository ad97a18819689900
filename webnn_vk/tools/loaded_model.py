"""Shared by commands on a model: options, the opened model with its inputs, tensors."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from webnn_vk.api.inspection import memory_in_use, pass_pictures
from webnn_vk.compiler.types.data_types import MLTensorDescriptor
from webnn_vk.profiler.pictures import PassPictures
from webnn_vk.support.cached_property import cached_property
from webnn_vk.support.dataclass import dataclass

from .devices import open_context
from .inputs import Given, ImageScale, feeds, named
from .models import OpenedModel, open_model
from .output import Steps, working

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
class LoadedModel:
    """A model on a context. ``build_seconds``: the time to open and build it; ``bar``: the progress
    of the command; ``passes``: its graph after each pass, if requested."""

    options: Options
    context: MLContext
    opened: OpenedModel
    build_seconds: float
    bar: Steps
    passes: PassPictures

    def __post_init__(self) -> None:
        self.title, self.graph = self.opened.title, self.opened.graph
        self.device, self.report = str(self.context.device_info), self.graph.report()

    @cached_property
    def feeds(self) -> dict[str, np.ndarray]:
        """An array for each input. ``ToolError`` for arrays that don't fit."""
        given = named(self.options.inputs, list(self.opened.ports))
        return feeds(self.graph.inputs, given, self.options.seed, self.options.scale)

    def memory(self) -> int:
        """Bytes of tensors, weights and intermediates on the device."""
        return memory_in_use(self.context)


@contextmanager
def loaded(options: Options, with_passes: bool = False) -> Iterator[LoadedModel]:
    """Open the model on its device. ``with_passes``: with pictures of the passes. ``ToolError``
    where that fails."""
    with working("building the model") as bar, open_context(options.device) as context:
        start = time.perf_counter()
        seen = pass_pictures(context)
        with seen if with_passes else nullcontext():
            opened = open_as_given(options, context)
        yield LoadedModel(options, context, opened, time.perf_counter() - start, bar, seen)


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

"""Ways in which a graph is computed, which all have to agree: compiled with and without passes,
packed and plain, with usual and other schedules, for software and for a simulated GPU; built and
loaded, in the first run and later ones, on arrays and on tensors.

A test opens the `contexts` of a device, builds its graph on each, and calls `runs` to run it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.conformance.wpt.conformance import ALL_PASSES
from tests.support.contexts import open_context
from tests.support.forced import Forced, pretended_gpu
from tests.support.running import device_profile
from webnn_vk import MLContext, MLGraph
from webnn_vk.driver.device_profile import DeviceProfile

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Way:
    """How graphs are compiled: without some passes, or with schedules that `Forced` picks."""

    skipped: tuple[str, ...] = ()
    forced: bool = False


WAYS = {
    "default": Way(),
    "unfused": Way(ALL_PASSES),
    "plain": Way(("pack", "absorb", "in_place")),
    "tuned": Way(forced=True),
}
#: What the test device is taken for: itself, which is software where there is no GPU, or a GPU.
DEVICES = ("software", "gpu")


def limits_of(device: str, profile: DeviceProfile) -> dict[str, Any]:
    """The changed fields of the test device's profile for one of `DEVICES`. A GPU has the integer
    dot products that the device has in hardware."""
    if device == "software":
        return {}
    features = profile.features | {"integer_dot_product_accelerated"}
    return {**pretended_gpu(profile), "features": features}


def as_device(device: str, profile: DeviceProfile) -> DeviceProfile:
    """The profile of one of `DEVICES` on a device with this profile."""
    return profile.replace(**limits_of(device, profile))


@contextmanager
def contexts(device: str, folder: Path) -> Iterator[dict[str, MLContext]]:
    """A context for each of `WAYS` on one of `DEVICES`. Tuned schedules are stored in ``folder``,
    where other tests don't find them."""
    limits = limits_of(device, device_profile())
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(open_context(
                limits=limits, skip_passes=way.skipped, tune=way.forced,
                **({"cache": folder} if way.forced else {}),
            ))
            for name, way in WAYS.items()
        }


def by_chance(forced: Forced, seed: str) -> None:
    """Each kernel with a random legal schedule."""
    forced.pick = random.Random(seed).randrange


def runs(context: MLContext, graph: MLGraph, feeds: Mapping[str, np.ndarray]) -> tuple[
    Arrays, Arrays
]:
    """A graph's results for ``feeds`` and `others`. Every further run has to give the same bits:
    after a run with other inputs, from the graph saved and loaded, on tensors, and on the same
    tensors again. AssertionError names the run that differs."""
    inputs = {name: feeds[name] for name in graph.inputs}
    other_inputs = others(inputs)
    first, second = context.compute(graph, inputs), context.compute(graph, other_inputs)
    assert_same_bits(context.compute(graph, inputs), first, "after other inputs")
    sequence = ((other_inputs, second), (inputs, first), (inputs, first))
    for results, (_, wanted) in zip(
        _on_tensors(context, graph, [arrays for arrays, _ in sequence]), sequence, strict=True
    ):
        assert_same_bits(results, wanted, "on tensors")
    key = f"ways-{os.getpid()}"  # processes that run tests in parallel share the folder
    context.save_graph(key, graph).result()
    with context.load_graph(key).result() as loaded:
        assert (loaded.inputs, loaded.outputs) == (graph.inputs, graph.outputs)
        assert_same_bits(context.compute(loaded, inputs), first, "loaded")
        assert_same_bits(context.compute(loaded, other_inputs), second, "loaded, other inputs")
    context.delete_graph(key).result()
    return first, second


def others(feeds: Mapping[str, np.ndarray]) -> Arrays:
    """The same elements in the opposite order: indices stay valid."""
    return {name: np.flip(array.reshape(-1)).reshape(array.shape) for name, array in feeds.items()}


def _on_tensors(
    context: MLContext, graph: MLGraph, sequence: list[Arrays]
) -> list[Arrays]:
    """The results of several runs on the same tensors, queued one after the other."""
    with ExitStack() as stack:
        def made(descriptor: Any, **use: bool) -> Any:
            described = {"data_type": descriptor.data_type, "shape": descriptor.shape, **use}
            tensor = context.create_tensor(described).result()
            stack.callback(tensor.destroy)
            return tensor

        inputs = {name: made(d, writable=True) for name, d in graph.inputs.items()}
        outputs = {name: made(d, readable=True) for name, d in graph.outputs.items()}
        reads = []
        for arrays in sequence:
            for name, array in arrays.items():
                context.write_tensor(inputs[name], array)
            context.dispatch(graph, inputs, outputs)
            reads.append({name: context.read_tensor(t) for name, t in outputs.items()})
        return [{name: read.result() for name, read in each.items()} for each in reads]


def assert_same_bits(
    got: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], how: str
) -> None:
    assert got.keys() == wanted.keys(), how
    for name, array in wanted.items():
        assert got[name].tobytes() == array.tobytes(), f"{how}: {name} differs"

"""MLGraph: a compiled graph (§8.4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from webnn_vk.compiler.program import GraphReport
from webnn_vk.compiler.types.data_types import (
    MLOperandDescriptor,
    entries,
    to_shape,
)
from webnn_vk.compiler.types.data_types import shown as shown_value
from webnn_vk.runtime.context_state import ContextState
from webnn_vk.runtime.storage import Storage
from webnn_vk.runtime.work import Executable
from webnn_vk.support.errors import InvalidStateError, sanitize, shortage_error
from webnn_vk.support.experimental import require_experimental
from webnn_vk.support.mixins import AsyncManager, OneOfAKind, PublicDir, html_table
from webnn_vk.support.promise import kind_of

from .compute_policy import effective_policy
from .shaped_executables import ShapedExecutables, shown
from .tensor import MLTensor


class MLGraph(PublicDir, OneOfAKind, AsyncManager):
    """A compiled graph, made by ``MLGraphBuilder.build`` and run by ``context.dispatch`` or
    ``context.compute``."""

    def __init__(
        self,
        context: ContextState,
        executable: Executable,
        unused: frozenset[str] = frozenset(),
        shapes: ShapedExecutables | None = None,
    ) -> None:
        self._context = context
        self._executable: Executable | None = executable
        self._report = executable.report
        # Inputs that were described, but that no node of the graph reads.
        self._unused = unused
        # The executables by shape of a graph with named dimensions.
        self._shapes = shapes
        self._inputs = dict(executable.program.inputs)
        self._outputs = dict(executable.program.outputs)
        if shapes is not None:
            self._inputs = {name: shown(d) for name, d in shapes.inputs.items()}
            self._outputs = {name: shown(d) for name, d in shapes.outputs.items()}

    @property
    def inputs(self) -> dict[str, MLOperandDescriptor]:
        """Name → descriptor of every input (extension, from the cache explainer)."""
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, MLOperandDescriptor]:
        """Name → descriptor of every output (extension, from the cache explainer)."""
        return dict(self._outputs)

    @property
    def compute_policy(self) -> str:
        """The policy in effect for this graph: "fallback" if all its steps run on a CPU, otherwise
        the context's (experimental "compute-policy", webnn#934). AttributeError in contexts without
        the draft."""
        on_device = any(step.device == "vulkan" for step in self._report.steps)
        return effective_policy(self._context, "compute_policy", on_device)

    def compute_shapes(
        self, shapes: Mapping[str, Sequence[int]]
    ) -> dict[str, tuple[int, ...]]:
        """The outputs' shapes by name for the inputs' ``shapes`` by name (extension,
        experimental "dynamic-shapes"). Checks them as ``dispatch`` does, compiles nothing and
        returns at once. Raises TypeError for shapes that the graph doesn't accept,
        InvalidStateError when the graph was destroyed."""
        what = "compute_shapes"
        require_experimental(self._context.experimental, "dynamic-shapes", what)
        given = entries(shapes, f"{what}: shapes is a mapping of names to shapes")
        check_names(given, self._inputs, f"{what}: inputs", self._unused)
        given = {name: to_shape(shape, f"{what}: {sanitize(name)!r}") for name, shape in
                 given.items()}
        check_alive(self, what)
        if self._shapes is not None:
            return self._shapes.shapes_of(self._shapes.sizes_of(given, what))
        for name, shape in given.items():
            if shape != self._inputs[name].shape:
                raise TypeError(
                    f"{what}: input {sanitize(name)!r} has shape {list(shape)}; "
                    f"{self._inputs[name]} is expected"
                )
        return {name: d.shape for name, d in self._outputs.items()}

    def report(self) -> GraphReport:
        """The compiled steps with device, kernel and cost, sizes and build times (extension).
        Returns at once and never raises, not even for a destroyed graph."""
        executable = self._executable
        if executable is not None and executable.refused:
            self._report = replace(executable.report, notes=self._report.notes)
        return self._report

    def destroy(self) -> None:
        """Release the graph (§8.4.1), at once; runs that are queued already complete. A second call
        does nothing. Raises InvalidStateError in a forked child."""
        self._context.timeline.check_fork()
        self.report()  # as it is now
        self._executable = self._shapes = None

    def __enter__(self) -> MLGraph:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._context.timeline.forked:
            self.destroy()

    def __repr__(self) -> str:
        described = (
            ", ".join(f"{sanitize(name)!r}: {d}" for name, d in descriptors.items())
            for descriptors in (self._inputs, self._outputs)
        )
        state = " destroyed" if self._executable is None else ""
        return f"<MLGraph {' → '.join(f'({part})' for part in described)}{state}>"

    def _repr_html_(self) -> str:
        rows = [
            (kind, sanitize(name), descriptor.data_type, list(descriptor.shape))
            for kind, descriptors in (("input", self._inputs), ("output", self._outputs))
            for name, descriptor in descriptors.items()
        ]
        state = ", destroyed" if self._executable is None else ""
        return html_table(
            rows, ("", "name", "data type", "shape"),
            f"MLGraph: {self._report.summary}{state}",
        )


def annotate(graph: MLGraph, note: str) -> None:
    """Add a note to the graph's report."""
    report = graph._report
    graph._report = replace(report, notes=(*report.notes, note))


def check_names(
    given: Mapping[str, Any],
    expected: Mapping[str, Any],
    what: str,
    unused: Collection[str] = (),
) -> None:
    """Raise TypeError unless both have the same keys. ``unused``: inputs of the builder that the
    graph doesn't have, because no output depends on them."""
    if given.keys() != expected.keys():
        names = sorted(_named(name) for name in given)
        idle = sorted(sanitize(name) for name in given if name in unused and name not in expected)
        raise TypeError(
            f"{what} {names} were given, {sorted(map(sanitize, expected))} are expected"
            + (f"; no output depends on {idle}: leave it out" if idle else "")
        )


def _named(name: Any) -> str:
    return sanitize(name) if isinstance(name, str) else shown_value(name)


def executable_of(
    graph: Any, context: ContextState | None = None, what: str = "compute",
    shapes: Callable[[MLGraph, Any, str], Mapping[str, Sequence[int]]] | None = None,
    inputs: Any = None,
) -> Executable:
    """The graph's executable. Raises TypeError unless it is a graph of the context (None: of any),
    InvalidStateError when it was destroyed or the device is lost, OperationError when there is no
    memory for other sizes. ``what`` names the call. ``shapes``: a function of the graph, ``inputs``
    and ``what`` that gives the inputs' shapes by name; without it a graph with named dimensions has
    the executable of its largest sizes."""
    if not isinstance(graph, MLGraph):
        raise TypeError(f"{what}: an MLGraph is expected, not {kind_of(graph)}")
    if context is not None and graph._context is not context:
        raise TypeError(f"{what}: the graph belongs to another context")
    executable = check_alive(graph, what)
    if (made := graph._shapes) is None or shapes is None:
        return executable
    sizes = made.sizes_of(shapes(graph, inputs, what), what)
    try:
        return made.at(sizes)
    except MemoryError as error:
        raise shortage_error(error, what) from None


def check_alive(graph: MLGraph, what: str) -> Executable:
    """The executable of a graph. InvalidStateError when the graph was destroyed, or the context is
    lost."""
    executable = graph._executable
    if executable is None:
        raise graph._context.loss() or InvalidStateError(f"{what}: the graph was destroyed")
    return executable


def input_shapes(
    graph: MLGraph, tensors: Mapping[str, Any], what: str
) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors given for a graph's inputs. Raises TypeError for other names and
    objects."""
    check_names(tensors, graph._inputs, f"{what}: inputs", graph._unused)
    for tensor in tensors.values():
        if not isinstance(tensor, MLTensor):
            raise TypeError(f"{what}: an MLTensor is expected, not {kind_of(tensor)}")
    return {name: tensor.shape for name, tensor in tensors.items()}


def storages(
    tensors: Mapping[str, MLTensor],
    descriptors: Mapping[str, MLOperandDescriptor],
    kind: str,
    unused: Collection[str] = (),
    what: str = "dispatch",
) -> dict[str, Storage]:
    """The storages of a graph's inputs or outputs (``kind``) by name. Raises TypeError for tensors
    that don't match ``descriptors`` (§8.3, "validate tensors with descriptors")."""
    if tensors.keys() != descriptors.keys():
        check_names(tensors, descriptors, f"{what}: {kind}s", unused)
    bound = {}
    for name, tensor in tensors.items():
        state, wanted = tensor._state, descriptors[name]
        given = state.descriptor
        if state.constant:
            raise TypeError(f"{what}: {kind} {sanitize(name)!r} is a constant tensor")
        if given.shape != wanted.shape or given.data_type != wanted.data_type:
            raise TypeError(
                f"{what}: {kind} {sanitize(name)!r} is {given}, {wanted} is expected"
            )
        bound[name] = state.storage or state.storage_of(what)
    return bound

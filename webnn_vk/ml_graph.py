"""MLGraph: a compiled graph (§8.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .data_types import MLOperandDescriptor
from .errors import InvalidStateError, sanitize
from .program import GraphReport

if TYPE_CHECKING:
    from .context import MLContext
    from .runtime import Executable, Storage
    from .tensor import MLTensor


class MLGraph:
    """Made by ``MLGraphBuilder.build``; run by ``context.dispatch`` or ``context.compute``."""

    def __init__(self, context: MLContext, executable: Executable, report: GraphReport) -> None:
        self._context = context
        self._executable: Executable | None = executable
        self._report = report
        self._inputs = dict(executable.program.inputs)
        self._outputs = dict(executable.program.outputs)

    @property
    def inputs(self) -> dict[str, MLOperandDescriptor]:
        """Name → descriptor of every input (extension, from the cache explainer)."""
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, MLOperandDescriptor]:
        """Name → descriptor of every output (extension, from the cache explainer)."""
        return dict(self._outputs)

    def report(self) -> GraphReport:
        """What was compiled: steps with device, kernel and cost, sizes and build times
        (extension)."""
        return self._report

    def destroy(self) -> None:
        """Release the graph (§8.4.1); what is queued already still runs. Calling it again does
        nothing."""
        self._context._timeline.check_fork()
        self._executable = None

    def _use(self) -> Executable:
        executable = self._executable
        if executable is None:
            raise InvalidStateError("the graph was destroyed")
        return executable

    def __enter__(self) -> MLGraph:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._context._timeline.forked:
            self.destroy()

    def __repr__(self) -> str:
        described = (
            ", ".join(f"{sanitize(name)!r}: {d}" for name, d in descriptors.items())
            for descriptors in (self._inputs, self._outputs)
        )
        state = " destroyed" if self._executable is None else ""
        return f"<MLGraph {' → '.join(f'({part})' for part in described)}{state}>"


def check_names(given: Mapping[str, Any], expected: Mapping[str, Any], what: str) -> None:
    """TypeError unless both have the same keys."""
    if given.keys() != expected.keys():
        names = sorted(sanitize(str(name)) for name in given)
        raise TypeError(
            f"{what} {names} were given, {sorted(map(sanitize, expected))} are expected"
        )


def match(
    tensors: Mapping[str, MLTensor], descriptors: Mapping[str, MLOperandDescriptor], kind: str
) -> dict[str, Storage]:
    """Storages by name (§8.3, "validate tensors with descriptors")."""
    check_names(tensors, descriptors, f"dispatch: {kind}s")
    bound = {}
    for name, tensor in tensors.items():
        wanted = descriptors[name]
        if tensor.constant:
            raise TypeError(f"dispatch: {kind} {sanitize(name)!r} is a constant tensor")
        if (tensor.data_type, tensor.shape) != (wanted.data_type, wanted.shape):
            raise TypeError(
                f"dispatch: {kind} {sanitize(name)!r} is {tensor._descriptor}, {wanted} is expected"
            )
        bound[name] = tensor._use("dispatch")
    return bound

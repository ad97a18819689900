"""Errors of model files, and of models that can't be imported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import NotSupportedError, sanitize


class InvalidModelError(ValueError):
    """The file is no valid ONNX model: damaged, cyclic, with data outside of its folder …"""


@dataclass(frozen=True)
class Problem:
    """One thing in a model that can't be taken. ``inputs`` names the model inputs whose values
    (or, with ``shape``, whose dimensions) would have to be given."""

    node: str
    operator: str
    reason: str
    inputs: frozenset[str] = field(default=frozenset())
    shape: bool = False

    def __str__(self) -> str:
        where = f"{self.operator} {sanitize(self.node)!r}" if self.operator else sanitize(self.node)
        return f"{where}: {sanitize(self.reason)}"


class UnsupportedModelError(NotSupportedError):
    """A valid model that WebNN can't express as given; ``problems`` lists every reason at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Sequence[Problem] = tuple(problems)
        lines = "".join(f"\n  {problem}" for problem in self.problems[:_SHOWN])
        rest = len(self.problems) - _SHOWN
        more = f"\n  … and {rest} more (.problems)" if rest > 0 else ""
        count = len(self.problems)
        reasons = "one reason" if count == 1 else f"{count} reasons"
        super().__init__(f"the model can't be taken, for {reasons}:{lines}{more}")

    @property
    def values_needed(self) -> frozenset[str]:
        """Inputs whose values would have to be given as arrays."""
        return frozenset().union(*(p.inputs for p in self.problems if not p.shape))


_SHOWN = 40


class Unsupported(Exception):
    """Raised by an operator's function: this node can't be expressed, with the reason."""


class UseFunctionBody(Exception):
    """Raised by an operator's function before it does anything: the body that ONNX itself gives for
    the operator is to be expanded."""


def refuse_if(wrong: object, reason: str) -> None:
    """Unsupported, with the reason, if something is wrong."""
    if wrong:
        raise Unsupported(reason)


class NeedsValue(Exception):
    """Raised by an operator's function: it has to know a tensor's value at import."""

    def __init__(self, tensor: object, what: str) -> None:
        super().__init__(what)
        self.tensor = tensor

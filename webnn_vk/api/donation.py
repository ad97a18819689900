"""Donated inputs: the tensors that a graph updates in place (``build(..., donate=...)``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from webnn_vk.compiler.program import Program
from webnn_vk.compiler.types.data_types import entries, shown
from webnn_vk.support.errors import OperationError, sanitize

if TYPE_CHECKING:
    from webnn_vk.compiler.ir import Value


def checked_names(
    donate: Mapping[str, str] | None, inputs: Mapping[str, Any], outputs: Mapping[str, Any],
    what: str, whose: str,
) -> dict[str, str]:
    """``donate``, from inputs to outputs. Raises TypeError for a name that is not among these, and
    for an output that two inputs are given to. ``what`` and ``whose`` ("the graph's"): for
    messages."""
    pairs = {} if donate is None else dict(
        entries(donate, f"{what}: donate is a mapping of inputs to outputs")
    )
    taken: set[str] = set()
    for past, present in pairs.items():
        for name, known, kind in ((past, inputs, "input"), (present, outputs, "output")):
            if not isinstance(name, str) or name not in known:
                text = sanitize(name) if isinstance(name, str) else shown(name)
                raise TypeError(
                    f"{what}: donate names {text!r}; {whose} {kind}s are "
                    f"{sorted(map(sanitize, known))}"
                )
        if present in taken:
            raise TypeError(f"{what}: donate gives output {sanitize(present)!r} two inputs")
        taken.add(present)
    return pairs


def checked_pairs(
    donate: Mapping[str, str] | None, inputs: Mapping[str, Value], outputs: Mapping[str, Value]
) -> dict[str, str]:
    """``build``'s ``donate``, from inputs to outputs. Raises TypeError as ``checked_names`` does,
    and for descriptors that differ."""
    pairs = checked_names(donate, inputs, outputs, "build", "the graph's")
    for past, present in pairs.items():
        given, wanted = inputs[past].descriptor, outputs[present].descriptor
        if given != wanted:
            raise TypeError(
                f"build: donate: input {sanitize(past)!r} is {given}, output "
                f"{sanitize(present)!r} is {wanted}; they must be equal"
            )
    return pairs


def check_in_place(program: Program) -> None:
    """OperationError if the program keeps a copy of a donated input."""
    from webnn_vk.compiler.program import copies_kept

    kept = copies_kept(program)
    if kept:
        past, reason = next(iter(kept.items()))
        raise OperationError(
            f"build: donate: input {sanitize(past)!r} is not updated in place: {reason}"
        )


def check_repeated(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any], donated: Mapping[str, str]
) -> None:
    """TypeError if a tensor is given twice, unless it is for a donated input and its output."""
    seen = {id(tensor): name for name, tensor in inputs.items()}
    others = {id(tensor): name for name, tensor in outputs.items()}
    if len(seen) < len(inputs) or len(others) < len(outputs) or any(
        donated.get(seen[tensor]) != name for tensor, name in others.items() if tensor in seen
    ):
        raise TypeError(
            "dispatch: a tensor is given more than once, which only a donated input and its output "
            "may be (build(…, donate={input: output}))"
        )

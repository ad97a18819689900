"""Operators that read or write at positions from an index tensor: gather, gather_elements,
gather_nd, scatter_elements, scatter_nd.

Indices range over −N … N−1: negative indices count from the end, indices out of range are clamped.
If several updates of a scatter have the same position, the last one (in row-major order of the
updates) wins, on every device; the draft leaves that open.
"""

from __future__ import annotations

import math

import numpy as np

from ..types.data_types import ALL_TYPES, MAX_RANK, MLOperandDescriptor
from .arguments import U32, Operand
from .lowering import Gather, Scatter
from .record import Check, Like, Limits, operator

INDEX_TYPES = ("int32", "uint32", "int64")

_FROM_1 = Limits(ALL_TYPES, (1, MAX_RANK))
_INDICES = Limits(INDEX_TYPES)
_INDICES_FROM_1 = Limits(INDEX_TYPES, (1, MAX_RANK))


def resolve_indices(indices: np.ndarray, size: int) -> np.ndarray:
    """Indices into a dimension of ``size``, negative ones from its end, clamped to it."""
    wide = indices.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + size, wide), 0, size - 1)


def _check_along_axis(
    check: Check, input: MLOperandDescriptor, indices: MLOperandDescriptor, axis: int
) -> None:
    """Steps that gather_elements and scatter_elements share."""
    check.that(
        indices.rank == input.rank,
        f"indices is {indices}, input is {input}; the same rank is required",
    )
    check.axis(axis, input)
    expected = (*input.shape[:axis], indices.shape[axis], *input.shape[axis + 1 :])
    check.that(
        indices.shape == expected,
        f"indices is {indices}, input is {input}; only dimension {axis} may differ",
    )


def _nd_shape(
    check: Check, input: MLOperandDescriptor, indices: MLOperandDescriptor
) -> tuple[int, ...]:
    """Shape of the elements selected by the coordinates in the last dimension of ``indices``."""
    count = indices.shape[-1]
    check.that(
        count <= input.rank,
        f"indices is {indices}: coordinates of {count} indices exceed the rank of input {input}",
    )
    return (*indices.shape[:-1], *input.shape[count:])


def _flat_coordinates(indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Row-major positions in ``shape`` of the coordinates in the last dimension of ``indices``."""
    position = np.zeros(indices.shape[:-1], np.int64)
    for i, size in enumerate(shape):
        position = position * size + resolve_indices(indices[..., i], size)
    return position


def _flat_along_axis(indices: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """Row-major positions in ``shape`` of indices along ``axis``, the other coordinates kept."""
    resolved = resolve_indices(indices, shape[axis])
    own = np.ogrid[tuple(slice(n) for n in indices.shape)]
    return np.ravel_multi_index(
        np.broadcast_arrays(*[resolved if i == axis else g for i, g in enumerate(own)]), shape
    )


# -- gather ----------------------------------------------------------------------------------
@operator("§8.9.20", input=_FROM_1, indices=_INDICES, output=Like("input", rank=(0, MAX_RANK)))
def gather(check: Check, input: Operand, indices: Operand, *, axis: U32 = 0):
    """Slices of the input at ``indices`` along ``axis``: the shape of ``indices`` replaces that
    dimension."""
    check.axis(axis, input)
    shape = (*input.shape[:axis], *indices.shape, *input.shape[axis + 1 :])
    return MLOperandDescriptor(input.data_type, shape)


gather.lowers_to(Gather("axis"))


@gather.reference(promotes=False)
def _(out, input, indices, axis):
    return np.take(input, resolve_indices(indices, input.shape[axis]), axis)


# -- gather_elements -------------------------------------------------------------------------
@operator("§8.9.21", input=_FROM_1, indices=_INDICES_FROM_1, output=Like("input"))
def gather_elements(check: Check, input: Operand, indices: Operand, *, axis: U32 = 0):
    """For each element of ``indices``, the input's element with that index along ``axis`` and the
    same other coordinates."""
    _check_along_axis(check, input, indices, axis)
    return MLOperandDescriptor(input.data_type, indices.shape)


gather_elements.lowers_to(Gather("elements"))


@gather_elements.reference(promotes=False)
def _(out, input, indices, axis):
    return np.take_along_axis(input, resolve_indices(indices, input.shape[axis]), axis)


# -- gather_nd -------------------------------------------------------------------------------
@operator(
    "§8.9.22", input=_FROM_1, indices=_INDICES_FROM_1, output=Like("input", rank=(0, MAX_RANK))
)
def gather_nd(check: Check, input: Operand, indices: Operand):
    """Slices of the input at the coordinates in the last dimension of ``indices``, which index the
    input's leading dimensions."""
    return MLOperandDescriptor(input.data_type, _nd_shape(check, input, indices))


gather_nd.lowers_to(Gather("nd"))


@gather_nd.reference(promotes=False)
def _(out, input, indices):
    count = indices.shape[-1]
    rows = input.reshape(-1, math.prod(input.shape[count:]))
    return rows[_flat_coordinates(indices, input.shape[:count])].reshape(out.shape)


# -- scatter_elements ------------------------------------------------------------------------
@operator(
    "§8.9.44", input=_FROM_1, indices=_INDICES_FROM_1, updates=Like("input"), output=Like("input")
)
def scatter_elements(
    check: Check, input: Operand, indices: Operand, updates: Operand, *, axis: U32 = 0
):
    """The input with the elements of ``updates`` written at ``indices`` along ``axis``, with the
    same other coordinates. If an element has several updates, the last one wins."""
    check.same_type(input=input, updates=updates)
    _check_along_axis(check, input, indices, axis)
    check.shape("updates", updates, indices.shape)
    return check.same_as(input)


scatter_elements.lowers_to(Scatter("elements"))


@scatter_elements.reference(promotes=False)
def _(out, input, indices, updates, axis):
    result = np.array(input, order="C")
    # One flat index array: NumPy then assigns in order, so the last of several updates stays.
    positions = _flat_along_axis(indices, input.shape, axis).reshape(-1)
    result.reshape(-1)[positions] = updates.reshape(-1)
    return result


# -- scatter_nd ------------------------------------------------------------------------------
@operator(
    "§8.9.45",
    input=_FROM_1,
    indices=_INDICES_FROM_1,
    updates=Like("input", rank=(0, MAX_RANK)),
    output=Like("input"),
)
def scatter_nd(check: Check, input: Operand, indices: Operand, updates: Operand):
    """The input with the slices of ``updates`` written at the coordinates in the last dimension of
    ``indices``. If a slice has several updates, the last one wins."""
    check.same_type(input=input, updates=updates)
    check.shape("updates", updates, _nd_shape(check, input, indices))
    return check.same_as(input)


scatter_nd.lowers_to(Scatter("nd"))


@scatter_nd.reference(promotes=False)
def _(out, input, indices, updates):
    count = indices.shape[-1]
    result = np.array(input, order="C")
    rows = result.reshape(-1, math.prod(input.shape[count:]))
    positions = _flat_coordinates(indices, input.shape[:count]).reshape(-1)
    rows[positions] = updates.reshape(len(positions), -1)
    return result

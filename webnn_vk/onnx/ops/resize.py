"""Resize and Upsample: resample2d where it says the same, else sums of gathered elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from webnn_vk.api.builder import MLOperand
from webnn_vk.compiler.types.data_types import MAX_DIMENSION
from webnn_vk.compiler.types.sizes import Size
from webnn_vk.support.dataclass import dataclass

from ..context import NodeContext, check_made, view_along
from ..errors import Unsupported, refuse_if
from ..records import onnx_operator
from ..values import Tensor

#: The data types of resample2d.
_RESAMPLED = ("float32", "float16", "int8", "uint8")
#: Gathers that one axis becomes at most, on either side.
_MAX_TAPS = 128
#: How Resize rounded before it had a nearest_mode: down, but up where an axis gets shorter.
_SIMPLE = ""
#: Positions this close to the middle of two elements are in the middle, as in ONNX Runtime.
_TIE = 1e-6


@onnx_operator("Upsample", last=9, moved=("scales",), since=9)
@onnx_operator("Resize", last=10)
def upsample(c: NodeContext, x: Tensor, scales: Tensor, *, mode: str = "nearest") -> MLOperand:
    return resize(
        c, x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric",
        nearest_mode=_SIMPLE,
    )


@onnx_operator("Resize", first=11)
def resize(
    c: NodeContext,
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> MLOperand:
    chosen = c.chosen_axes(axes, x)
    lengths = [x.shape[a] for a in chosen]
    if sizes is not None and sizes.size:
        new = c.ints(sizes, "the sizes")
        _check(x.shape, lengths, new)
        factors = [n / old for n, old in zip(new, lengths, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            pick = min if keep_aspect_ratio_policy == "not_larger" else max
            factors = [pick(factors)] * len(factors)
            new = [int(np.floor(factors[0] * old + 0.5)) for old in lengths]
            _check(x.shape, lengths, new)
    elif scales is not None and scales.size:
        factors = [float(v) for v in scales.value("the scales").reshape(-1)]
        new = _sizes(x.shape, lengths, factors)
    else:
        raise Unsupported("neither scales nor sizes are given")
    regions = [(0.0, 1.0)] * len(chosen)
    if coordinate_transformation_mode == "tf_crop_and_resize":
        if roi is None:
            raise Unsupported("tf_crop_and_resize without a region")
        corners = roi.value("the region").reshape(2, -1).astype(float).tolist()
        regions = list(zip(*corners, strict=True))
    result = x.operand
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    if not crops and all(n == old for n, old in zip(new, lengths, strict=True)):
        return result  # with any scales, as in ONNX Runtime
    integer = not result.data_type.startswith("float") and mode != "nearest"
    if integer:
        result = c.b.cast(result, "float32")
    native = _native(c, result, chosen, new, factors, mode, coordinate_transformation_mode,
                     nearest_mode, antialias)
    if native is not None:
        result = native
    else:
        if mode != "nearest":  # sums of weighted elements, which float16 would round, or overflow
            result = c.cast(result, "float32")
        for i, axis in enumerate(chosen):
            # What these axes keep, whatever the transformation says, is ONNX Runtime's definition.
            if not crops and (factors[i] == 1 or (antialias and new[i] == lengths[i])):
                continue
            plan = AxisPlan(
                lengths[i], new[i], factors[i], mode, coordinate_transformation_mode, nearest_mode,
                bool(antialias), cubic_coeff_a, bool(exclude_outside), regions[i],
            )
            result = _resample(c, result, axis, plan.table(), mode)
            outside = plan.outside()
            if outside.any():
                view = view_along(axis, x.rank)
                result = c.b.where(
                    c.constant(outside.reshape(view), "uint8"),
                    c.constant(extrapolation_value, result.data_type), result,
                )
    return c.cast(c.b.round_even(result) if integer else result, x.operand.data_type)


def _sizes(shape: Sequence[int], lengths: Sequence[int], factors: list[float]) -> list[int]:
    """The lengths times the factors, in float32 as ONNX infers shapes, rounded down."""
    if len(factors) != len(lengths) or not np.isfinite(factors).all():
        raise Unsupported(
            f"scales are {factors} for {len(lengths)} dimensions of {list(shape)}; a finite number "
            "for each is expected"
        )
    new = [
        n * int(f) if isinstance(n, Size) and f == int(f)
        else int(np.floor(np.float32(n) * np.float32(f)))
        for n, f in zip(lengths, factors, strict=True)
    ]
    _check(shape, lengths, new)
    return new


def _check(shape: Sequence[int], lengths: Sequence[int], new: list[int]) -> None:
    if len(new) != len(lengths) or not all(1 <= n <= MAX_DIMENSION for n in new):
        raise Unsupported(
            f"dimensions {list(lengths)} of {list(shape)} would become {new}; as many are "
            f"expected, each 1 … {MAX_DIMENSION}: WebNN has no empty tensors"
        )


def _native(
    c: NodeContext, x: MLOperand, axes: list[int], sizes: list[int], factors: list[float],
    mode: str, transform: str, nearest: str, antialias: int,
) -> MLOperand | None:
    """resample2d, where two axes change and positions count from the middle of elements."""
    changed = [i for i, a in enumerate(axes) if sizes[i] != x.shape[a]]
    # Sizes that are known at dispatch are given, or products with whole numbers. An axis that keeps
    # its length may have a scale, too, that moves its elements.
    exact = all(
        isinstance(size, Size) or abs(factor * x.shape[axis] - size) < 1e-4
        for axis, size, factor in zip(axes, sizes, factors, strict=True)
    )
    if len(x.shape) != 4 or not 1 <= len(changed) <= 2 or antialias or not exact:
        return None
    plain = transform == "half_pixel" or (
        transform == "pytorch_half_pixel" and all(sizes[i] > 1 for i in changed)
    )
    pair = [axes[i] for i in changed]
    if len(pair) == 1:
        pair = [pair[0], next(a for a in (3, 2, 1) if a != pair[0])]
    pair.sort()
    new = [sizes[axes.index(a)] if a in axes else x.shape[a] for a in pair]
    if mode == "linear" and plain:
        return c.b.resample2d(x, mode="linear", sizes=new, axes=pair)
    # Enlarged by a whole number, the nearest element is the same by all ways of rounding.
    whole = all(n % x.shape[a] == 0 for n, a in zip(new, pair, strict=True))
    floor = transform == "asymmetric" and nearest in ("floor", _SIMPLE)
    same = (plain and nearest == "round_prefer_floor") or (floor and whole)
    if mode == "nearest" and same and x.data_type in _RESAMPLED:
        return c.b.resample2d(x, mode="nearest-neighbor", sizes=new, axes=pair)
    return None


@dataclass
class AxisPlan:
    """How one axis is resampled: where new elements come from, with what weights."""

    size: int
    new_size: int
    scale: float
    mode: str
    transform: str
    nearest: str
    antialias: bool
    cubic: float
    exclude: bool
    region: tuple[float, float]

    def positions(self) -> np.ndarray:
        """Where new elements lie among the old ones."""
        check_made(self.new_size)
        # In float32 where rounding decides which element is nearest, as ONNX Runtime has it.
        kind = np.float32 if self.mode == "nearest" else np.float64
        x = np.arange(self.new_size, dtype=kind)
        n, new, scale = self.size, self.new_size, kind(self.scale)
        match self.transform:
            case "half_pixel":
                return (x + 0.5) / scale - 0.5
            case "pytorch_half_pixel":
                return (x + 0.5) / scale - 0.5 if new > 1 else np.zeros(new)
            case "asymmetric":
                return x / scale
            case "align_corners":
                # The new length is rounded down: the last element is the image's corner.
                return x * (n - 1) / (new - 1) if new > 1 else np.zeros(new)
            case "half_pixel_symmetric":
                adjusted = new / (scale * n)
                wide = n / 2 * (1 - adjusted) + (x + np.float64(0.5)) / np.float64(scale) - 0.5
                return wide.astype(kind)
            case "tf_half_pixel_for_nn":
                return (x + 0.5) / scale
            case "tf_crop_and_resize":
                start, end = map(kind, self.region)
                if new > 1:
                    return start * (n - 1) + x * (end - start) * (n - 1) / (new - 1)
                return np.full(new, 0.5 * (start + end) * (n - 1))
        raise Unsupported(f"coordinate_transformation_mode {self.transform!r} is unknown")

    def outside(self) -> np.ndarray:
        """Whether each new element lies outside of the old ones (tf_crop_and_resize)."""
        if self.transform != "tf_crop_and_resize":
            return np.zeros(self.new_size, bool)
        x = self.positions()
        return (x < 0) | (x > self.size - 1)

    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices [new, taps] and weights [new, taps]."""
        x = self.positions()
        if self.mode == "nearest":
            return self._nearest(x.astype(np.float64))
        refuse_if(self.mode not in ("linear", "cubic"), f"mode {self.mode!r} is unknown")
        # For shrinking without aliasing, the kernel is stretched over all that one element covers.
        stretch = max(1.0, 1 / self.scale) if self.antialias else 1.0
        reach = 1 if self.mode == "linear" else 2
        half = int(np.ceil(reach * stretch))
        check_made(self.new_size, 2 * half)
        refuse_if(half > _MAX_TAPS, f"each new element would be a sum of {2 * half} old ones")
        taps = np.floor(x)[:, None] + np.arange(-half + 1, half + 1)
        distance = np.abs(x[:, None] - taps) / stretch
        weights = _triangle(distance) if self.mode == "linear" else _cubic(distance, self.cubic)
        inside = (taps >= 0) & (taps < self.size)
        if self.exclude:
            weights = np.where(inside, weights, 0)
        if self.exclude or self.antialias:
            weights = weights / weights.sum(axis=1, keepdims=True)
        return np.clip(taps, 0, self.size - 1).astype(np.int32), weights

    def _nearest(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        middle = np.floor(x) + 0.5
        x = np.where(np.abs(x - middle) < _TIE, middle, x)
        rounded = {
            "round_prefer_floor": lambda: np.ceil(x - 0.5),
            "round_prefer_ceil": lambda: np.floor(x + 0.5),
            "floor": lambda: np.floor(x),
            "ceil": lambda: np.ceil(x),
            _SIMPLE: lambda: np.ceil(x) if self.scale < 1 else np.floor(x),
        }
        refuse_if(self.nearest not in rounded, f"nearest_mode {self.nearest!r} is unknown")
        at = np.clip(rounded[self.nearest](), 0, self.size - 1).astype(np.int32)
        return at[:, None], np.ones((len(at), 1))


def _triangle(distance: np.ndarray) -> np.ndarray:
    return np.clip(1 - distance, 0, None)


def _cubic(d: np.ndarray, a: float) -> np.ndarray:
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _resample(
    c: NodeContext, x: MLOperand, axis: int, table: tuple[np.ndarray, np.ndarray], mode: str
) -> MLOperand:
    """One axis resampled: each new element is a weighted sum of gathered ones."""
    indices, weights = table
    if len(indices) == x.shape[axis] and (indices[:, 0] == np.arange(len(indices))).all() and (
        weights[:, 0] == 1
    ).all():
        return x
    if mode == "nearest":
        return c.b.gather(x, indices[:, 0], axis=axis)
    view = view_along(axis, len(x.shape))
    total = None
    for tap in range(indices.shape[1]):
        if not weights[:, tap].any():
            continue
        part = c.b.gather(x, np.ascontiguousarray(indices[:, tap]), axis=axis)
        part = c.b.mul(part, c.constant(weights[:, tap].reshape(view), x.data_type))
        total = part if total is None else c.b.add(total, part)
    return total if total is not None else c.b.mul(x, 0.0)

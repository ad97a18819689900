"""A model's open dimensions as named dimensions of one graph (experimental "dynamic-shapes")."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto

from webnn_vk.compiler.types.data_types import MAX_DIMENSION
from webnn_vk.compiler.types.dimensions import MLDynamicDimension
from webnn_vk.support.errors import sanitize

from .reading import Port

#: The least value of a dimension's largest size, unless the caller gives one.
_LEAST = 16


def exported_bounds(model: ModelProto) -> dict[str, int]:
    """The largest sizes of dimensions that ``export`` has written into a model."""
    for entry in model.metadata_props:
        if entry.key == "webnn_vk.dimensions":
            try:
                return {
                    str(name): high for name, (_, high) in json.loads(entry.value).items()
                    if type(high) is int and 1 <= high <= MAX_DIMENSION and name.isidentifier()
                }
            except (ValueError, TypeError, AttributeError, RecursionError):  # another program's
                return {}
    return {}


class OpenDimensions:
    """Names and largest sizes of the open dimensions of a model's inputs. Dimensions without a name
    in the model, and those that exporters call "?", are each their own."""

    def __init__(
        self, ports: Iterable[Port], largest: Mapping[str, int], stored: Mapping[str, int]
    ) -> None:
        self._names: dict[str, tuple[str | int, ...]] = {
            port.name: tuple(
                d if isinstance(d, int) or (d and d.isidentifier()) else f"{port.name}.{axis}"
                for axis, d in enumerate(port.shape)
            )
            for port in ports if port.shape is not None
        }
        known = {d for names in self._names.values() for d in names if isinstance(d, str)}
        for name, size in largest.items():
            if name not in known:
                raise ValueError(
                    f"dimensions: the model has no open dimension {sanitize(str(name))!r}; it has "
                    f"{', '.join(repr(sanitize(n)) for n in sorted(known)) or 'none'}"
                )
            if isinstance(size, bool) or not hasattr(size, "__index__") or size < 1:
                raise ValueError(f"dimensions: {name!r}: a size of 1 or more is expected")
        self._largest = {name: size for name, size in stored.items() if name in known}
        self._largest |= {name: operator.index(size) for name, size in largest.items()}

    def sizes(self, arrays: Mapping[str, np.ndarray]) -> dict[str, int] | None:
        """The sizes by name; None where a graph with named dimensions can't take the arrays: of
        nothing, of inputs without a rank, and where a name stands for two sizes."""
        found: dict[str, int] = {}
        for name, array in arrays.items():
            if name not in self._names or not array.size:
                return None
            for dimension, size in zip(self._names[name], array.shape, strict=True):
                if isinstance(dimension, str) and found.setdefault(dimension, size) != size:
                    return None
        return found

    def grow(self, sizes: Mapping[str, int]) -> bool:
        """Make room for these sizes; whether a largest size has changed."""
        grown = {
            name: max(_LEAST, 1 << (size - 1).bit_length())
            for name, size in sizes.items() if size > self._largest.get(name, 0)
        }
        self._largest |= grown
        return bool(grown)

    def shape(self, name: str) -> Sequence[Any]:
        """An input's shape with named dimensions."""
        return [
            d if isinstance(d, int) else MLDynamicDimension(d, self._largest[d])
            for d in self._names[name]
        ]

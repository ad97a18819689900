"""``Session(…, donate=…)``: runs that update tensors of the context in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from webnn_vk.api.tensor import MLTensor
from webnn_vk.support.errors import sanitize

from .reading import Port
from .types import carrier, numpy_type


def split(
    ports: Mapping[str, Port], feeds: Any, donate: Mapping[str, str], narrow_double: bool
) -> tuple[Any, dict[str, MLTensor]]:
    """The feeds with an array in the place of each tensor, which has its shape and takes no memory;
    and the tensors. ValueError for a tensor of another data type, and one for an input that is not
    donated."""
    if not isinstance(feeds, Mapping):
        return feeds, {}
    tensors = {name: x for name, x in feeds.items() if isinstance(x, MLTensor)}
    arrays = dict(feeds)
    for name, tensor in tensors.items():
        what = f"input {sanitize(str(name))!r}"
        if name not in donate:
            raise ValueError(
                f"{what}: a tensor is given; only inputs that the session donates may be tensors "
                f"(Session(…, donate={{input: output}})), an array is expected"
            )
        port = ports[name]
        expected = carrier(port.type, narrow_double)
        if tensor.data_type != expected:
            raise ValueError(
                f"{what}: a {tensor.data_type} tensor is given, {expected} is expected"
            )
        arrays[name] = np.broadcast_to(np.zeros((), numpy_type(port.type)), tensor.shape)
    return arrays, tensors

"""``Session.io_binding``: inputs and outputs that are named first and run together, as ONNX
Runtime has it, in the host's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from webnn_vk.support.errors import sanitize

from .node_args import NodeArg
from .types import numpy_type

Run = Callable[[Sequence[str], Mapping[str, Any]], list[Any]]


class BoundValue:
    """An output of a run with a binding."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def numpy(self) -> Any:
        """The array."""
        return self._value

    def shape(self) -> list[int]:
        """Its dimensions."""
        return list(self._value.shape)

    def device_name(self) -> str:
        """Where it lies."""
        return "cpu"

    def is_tensor(self) -> bool:
        """Whether it is an array, no sequence of maps."""
        return isinstance(self._value, np.ndarray)

    def has_value(self) -> bool:
        """Always."""
        return True

    def __repr__(self) -> str:
        return f"<BoundValue {self._value!r}>"


class IOBinding:
    """What a session's next ``run_with_iobinding`` reads and writes. Devices other than "cpu" are a
    ValueError: tensors on a device belong to a context and its graphs (``dispatch``)."""

    def __init__(self, inputs: Sequence[NodeArg], outputs: Sequence[NodeArg]) -> None:
        self._inputs = {i.name for i in inputs}
        self._outputs = [o.name for o in outputs]
        self._feeds: dict[str, Any] = {}
        self._places: dict[str, np.ndarray | None] = {}
        self._results: list[BoundValue] = []

    # -- inputs ----------------------------------------------------------------------------------
    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Read an input from an array, as it is when the binding runs."""
        if name not in self._inputs:
            raise ValueError(f"the model has no input {sanitize(str(name))!r}")
        self._feeds[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any,
        shape: Sequence[int], buffer_ptr: int,
    ) -> None:
        """Read an input from memory at an address."""
        _check_device(device_type)
        self.bind_cpu_input(name, _at(buffer_ptr, element_type, shape))

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Read an input from what has a ``numpy()``."""
        self.bind_cpu_input(name, ortvalue.numpy())

    # -- outputs ---------------------------------------------------------------------------------
    def bind_output(
        self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:
        """Compute an output, into memory at an address where one is given."""
        _check_device(device_type)
        if name not in self._outputs:
            raise ValueError(f"the model has no output {sanitize(str(name))!r}")
        self._places[name] = (
            None if buffer_ptr is None else _at(buffer_ptr, element_type, shape or ())
        )

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Compute an output into what has a ``numpy()`` that shares its memory."""
        self.bind_output(name)
        self._places[name] = ortvalue.numpy()

    def get_outputs(self) -> list[BoundValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return list(self._results)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Arrays of the last run's outputs."""
        return [value.numpy() for value in self._results]

    # -- the rest --------------------------------------------------------------------------------
    def synchronize_inputs(self) -> None:
        """Nothing to wait for."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for: a run has ended when it returns."""

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._feeds.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._places.clear()
        self._results = []

    def run(self, call: Run) -> None:
        """One run of the session."""
        names = list(self._places)
        if not names:
            raise ValueError("no output is bound: bind_output(name)")
        results = call(names, self._feeds)
        made = []
        for name, result in zip(names, results, strict=True):
            place = self._places[name]
            if place is not None:
                if place.dtype != result.dtype or place.shape != result.shape:
                    raise ValueError(
                        f"output {sanitize(name)!r} is {result.dtype}{list(result.shape)}, bound "
                        f"is {place.dtype}{list(place.shape)}"
                    )
                place[...] = result
                result = place
            made.append(BoundValue(result))
        self._results = made


def _check_device(device_type: str) -> None:
    if device_type != "cpu":
        raise ValueError(
            f"device {device_type!r}: arrays of a Session are in host memory (\"cpu\")"
        )


def _at(address: int, element_type: Any, shape: Sequence[int]) -> np.ndarray:
    kind = numpy_type(np.dtype(element_type).name)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    memory = (ctypes.c_uint8 * size).from_address(address)
    flat: np.ndarray = np.frombuffer(memoryview(memory), np.uint8)
    return flat.view(kind).reshape(tuple(shape))

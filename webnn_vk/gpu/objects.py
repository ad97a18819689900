"""The base of the objects of a GPUDevice: labels, ends, and checks of arguments."""

from __future__ import annotations

import operator
from typing import Any, TypeVar

from webnn_vk.support.errors import InvalidStateError, sanitize
from webnn_vk.support.mixins import PublicDir
from webnn_vk.support.promise import kind_of

from .device_state import DeviceState


class GPUObject(PublicDir):
    """The base of objects that a GPUDevice makes."""

    def __init__(self, device: DeviceState, label: str) -> None:
        self._device = device
        self._label = label

    @property
    def label(self) -> str:
        """The name given to it."""
        return self._label


class Destroyable(GPUObject):
    """The base of objects with contents that ``destroy()`` releases."""

    def __init__(self, device: DeviceState, label: str, contents: Any) -> None:
        super().__init__(device, label)
        # A list, because ``pop`` removes the contents in one atomic step.
        self._contents = [contents]

    def destroy(self) -> None:
        """Release the contents, at once. A second call does nothing."""
        raise NotImplementedError

    def __enter__(self: D) -> D:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._device.timeline.forked:
            self.destroy()


O = TypeVar("O", bound=GPUObject)  # noqa: E741
D = TypeVar("D", bound=Destroyable)


def clear(destroyable: Destroyable) -> bool:
    """Release the contents. Returns whether there were any."""
    try:
        destroyable._contents.pop()
    except IndexError:
        return False
    return True


def alive(destroyable: Destroyable, what: str) -> Any:
    """The contents. Raises InvalidStateError when they were released."""
    try:
        return destroyable._contents[0]
    except IndexError:
        raise InvalidStateError(f"{what}: {destroyable!r} was destroyed") from None


def own(value: Any, kind: type[O], device: DeviceState, what: str) -> O:
    """``value``, an object of the device. Raises TypeError unless it is of the kind, ValueError
    when another GPUDevice made it. ``what`` names the call."""
    check_kind(value, kind, what)
    if value._device is not device:
        raise ValueError(f"{what}: {value!r} belongs to another GPUDevice")
    return value


def check_kind(value: Any, kind: type[GPUObject], what: str) -> None:
    """Raise TypeError unless ``value`` is of the kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{what}: a {kind.__name__} is expected, not {kind_of(value)}")


def integer(value: Any, what: str) -> int:
    """``value`` as an int. Raises TypeError for anything that is not an integer."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what}: an integer is expected, not {value!r}")
    return operator.index(value)


def named(what: str, label: str) -> str:
    """A method's name with its ``[label]`` for messages."""
    if not isinstance(label, str):
        raise TypeError(f"{what}: the label has to be a str, not {type(label).__name__}")
    return f"{what} [{sanitize(label)}]" if label else what


def shown(label: str) -> str:
    """A label in a repr; empty for no label."""
    return f" {sanitize(label)!r}" if label else ""

"""Deferred free: a Vulkan object is destroyed when no object of the driver's interface refers to it
and no submission uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar


class Native:
    """A Vulkan object. Destroyed by the driver when its handle is gone, the submission `last_value`
    is done, and it is idle."""

    __slots__ = ("last_value",)

    def __init__(self) -> None:
        self.last_value = 0

    def idle(self) -> bool:
        """Whether only submissions use it."""
        return True

    def destroy(self) -> None:
        """Destroys the Vulkan object."""
        raise NotImplementedError


N = TypeVar("N", bound=Native)


class Handle(Generic[N]):
    """An object of the driver's interface, which refers to a Vulkan object."""

    __slots__ = ("__weakref__", "_native", "_retire")

    def __init__(self, native: N, retire: Callable[[Any], None]) -> None:
        """retire: a function in C that takes `native`."""
        self._native: N | None = native
        self._retire = retire

    def free(self) -> None:
        """Releases it once its last submission is done. Calling it again does nothing."""
        native, self._native = self._native, None
        if native is not None:
            self._retire(native)

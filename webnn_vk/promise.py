"""MLPromise: the IDL's ``Promise<T>`` for threads and for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

T = TypeVar("T")


class MLPromise(Future[T]):
    """A result that arrives later.

    ``promise.result(timeout=None)`` blocks and returns it, ``await promise`` does not block the
    event loop. What the IDL rejects a promise with, both raise. A promise can't be cancelled: the
    work behind it is ordered with everything else on its context.
    """

    def __init__(self) -> None:
        super().__init__()
        # Running from the start, so that cancel() (also by a cancelled awaiting task) is refused.
        self.set_running_or_notify_cancel()

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self).__await__()

    @classmethod
    def resolved(cls, value: T) -> MLPromise[T]:
        promise: MLPromise[T] = cls()
        promise.set_result(value)
        return promise

    @classmethod
    def rejected(cls, error: BaseException) -> MLPromise[T]:
        promise: MLPromise[T] = cls()
        promise.set_exception(error)
        return promise

    def resolve(self, value: T) -> bool:
        """Set the result unless settled already; whether it was set here."""
        return self._settle(self.set_result, value)

    def reject(self, error: BaseException) -> bool:
        """Set the error unless settled already; whether it was set here."""
        return self._settle(self.set_exception, error)

    @staticmethod
    def _settle(setter: Any, value: Any) -> bool:
        try:
            setter(value)
        except InvalidStateError:
            return False
        return True

"""One function on many items, on as many threads as the system allows. Imports only the check for
free memory."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from . import memory_probe

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def spread(
    function: Callable[[_Item], _Result], items: Sequence[_Item], workers: int
) -> list[_Result]:
    """``function`` of each item, in their order, on up to ``workers`` threads, including the
    caller's, which does everything if the system has no thread left. The first error is raised
    when all threads have ended; later items may not have been processed."""
    results: list[_Result | None] = [None] * len(items)
    numbers = itertools.count()
    errors: list[BaseException] = []

    def work() -> None:
        while not errors and (number := next(numbers)) < len(items):
            try:
                results[number] = function(items[number])
            except BaseException as error:
                errors.append(error)

    helpers: list[threading.Thread] = []
    try:
        try:
            for _ in range(min(workers, len(items)) - 1):
                memory_probe.require_for_thread()
                helper = threading.Thread(target=work, name="webnn_vk-help", daemon=True)
                helper.start()
                helpers.append(helper)
        except RuntimeError:
            pass  # the system has no thread left
        work()
        for helper in helpers:
            helper.join()
    except BaseException as error:  # Ctrl-C here: the others stop after their current item
        errors.append(error)
        raise
    if errors:
        raise errors[0]
    return results  # type: ignore[return-value]

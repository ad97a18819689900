"""Contexts whose driver counts what calls cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.contexts import open_over
from tests.support.watched_driver import Watched
from webnn_vk import MLContext
from webnn_vk.runtime import timeline


@pytest.fixture
def never_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only the next run would use is kept, however long a busy machine takes for it."""
    monkeypatch.setattr(timeline, "QUIET_SECONDS", 3600.0)


@pytest.fixture(params=[False, True], ids=["visible", "hidden"])
def watched(request: Any, vulkan: None) -> Iterator[tuple[MLContext, Watched]]:
    """A context on memory that the host sees, and on memory that it doesn't, as on a GPU."""
    context, driver = open_over(lambda driver: Watched(driver, hidden=request.param))
    if request.param:
        context._state.timeline._shares_cores = False
    with context:
        yield context, driver

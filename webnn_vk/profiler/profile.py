"""``with context.profile() as p:``"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from webnn_vk.runtime.context_state import ContextState
from webnn_vk.runtime.timeline import Timeline
from webnn_vk.support import background
from webnn_vk.support.errors import InvalidStateError
from webnn_vk.support.mixins import OneOfAKind, PublicDir

from .collect import Collector
from .page import page
from .pictures import Picture
from .report import ProfileReport, Recorded, recorded, report_of
from .roofline import Roofline, measure
from .sampling import Sampler, stamp_seconds
from .trace import trace


def _check_free(timeline: Timeline) -> None:
    if timeline.observer is not None:
        raise InvalidStateError("profile: the device is profiled already")


class Profile(PublicDir, OneOfAKind):
    """Made by ``context.profile()``. Its results are available after the ``with`` statement."""

    def __init__(
        self, context: ContextState, *, roofline: bool = True, every: int | None = None
    ) -> None:
        if every is not None and (type(every) is not int or every < 1):
            raise TypeError(f"profile: every is a number of runs from 1 on, not {every!r}")
        self._context, self._with_roofline, self._every = context, roofline, every
        self._roofline: Roofline | None = None
        self._collector: Collector | None = None
        self._found: Recorded | None = None
        self._report: ProfileReport | None = None

    def __enter__(self) -> Profile:
        background.run_on_worker(self._start)
        return self

    def _start(self) -> None:
        context = self._context
        context.check()
        timeline, device = context.timeline, context.device
        _check_free(timeline)
        if self._collector is not None:
            raise InvalidStateError("profile: a profile is entered once")
        context.stream.fence().wait()
        stamp = 0.0
        if device.profile is not None:
            if self._with_roofline:
                self._roofline = measure(device)
            stamp = stamp_seconds(device)
        collector = Collector(device, Sampler(self._every, stamp))
        _check_free(timeline)  # another thread may have entered one meanwhile
        timeline.observer = device.observer = self._collector = collector

    def __exit__(self, *_: object) -> None:
        background.run_on_worker(self._end)

    def _end(self) -> None:
        context, collector = self._context, self._collector
        if collector is None:
            return
        self._wait()
        seconds = collector.now()
        context.timeline.observer = context.device.observer = None
        self._wait()  # for work that other threads and contexts have begun meanwhile
        try:
            self._found = recorded(collector, str(context.info), seconds, self._roofline)
            self._report = report_of(self._found)
        finally:
            collector.close()

    def _wait(self) -> None:
        try:
            self._context.stream.fence().wait()
        except InvalidStateError:
            pass  # the context was destroyed inside; earlier work is reported

    @property
    def report(self) -> ProfileReport:
        """The results as data; ``print`` shows a table. At once. InvalidStateError before the
        ``with`` statement is over."""
        if self._report is None:
            raise InvalidStateError("profile: its report is available after the with statement")
        return self._report

    def trace(self) -> dict[str, Any]:
        """The results in Chrome's Trace Event Format. At once; InvalidStateError as
        ``report``."""
        return trace(self._recorded())

    def html(self, passes: Sequence[tuple[Picture, Picture]] = ()) -> str:
        """The profile as a self-contained page, with the graphs where the extra ``pictures`` is
        installed. ``passes``: further pictures of a graph, before and after each pass. At once;
        InvalidStateError as ``report``."""
        return page(self._recorded(), self.report, passes)

    def save(self, path: str | Path) -> None:
        """Write ``NAME.json``, a trace for Perfetto or chrome://tracing, or ``NAME.html``, a page
        that needs nothing else. Waits for the file; ValueError for another name, OSError where it
        can't be written, InvalidStateError as ``report``."""
        place = Path(path)
        if place.suffix.lower() == ".json":
            text = json.dumps(self.trace())
        elif place.suffix.lower() in (".html", ".htm"):
            text = self.html()
        else:
            raise ValueError(f"save: {place.name} is neither NAME.json nor NAME.html")
        place.write_text(text, encoding="utf-8")

    def save_trace(self, path: str | Path) -> None:
        """Write the trace, whatever the file's name. As ``save``."""
        Path(path).write_text(json.dumps(self.trace()), encoding="utf-8")

    def _recorded(self) -> Recorded:
        if self._found is None:
            raise InvalidStateError("profile: it is available after the with statement")
        return self._found

    def __str__(self) -> str:
        return "a profile that is not over" if self._report is None else str(self._report)

    def __repr__(self) -> str:
        return f"<Profile {'not over' if self._report is None else self._report.summary}>"

    def _repr_html_(self) -> str:
        return self.report._repr_html_() if self._report is not None else repr(self)

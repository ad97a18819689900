"""Signals at chosen places. CPython runs handlers in the main thread: at the entry of a function,
at a jump backward and after a call."""

import dis
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any

#: Instructions after which handlers run (3.11 and later).
_CHECKED = {"CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD"}


class Places:
    """Counts the places that ``call`` passes; at place ``at`` calls ``handler``, once."""

    def __init__(self, at: int = -1, handler: Callable[[], Any] = lambda: None) -> None:
        self.passed = 0
        self._at, self._handler = at, handler
        self._last: dict[FrameType, int] = {}
        #: Whether the handler was called, and where.
        self.place = ""

    def call(self, function: Callable[[], Any]) -> Any:
        """Calls ``function()``; an exception of the handler is raised at that place."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            return function()
        finally:
            sys.settrace(before)
            self._last.clear()

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code is Places.call.__code__:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self._pass(frame)
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            last, here = self._last.get(frame, -1), frame.f_lasti
            self._last[frame] = here
            if last in _checked(frame.f_code):
                self._pass(frame)
        elif event == "exception":
            self._last[frame] = -1  # there is no check before its handler runs
        elif event == "return":
            self._last.pop(frame, None)
        return self._step

    def _pass(self, frame: FrameType) -> None:
        number, self.passed = self.passed, self.passed + 1
        if number == self._at:
            self.place = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}"
            trace = sys.gettrace()
            sys.settrace(None)
            self._handler()
            sys.settrace(trace)


@cache
def _checked(code: CodeType) -> frozenset[int]:
    return frozenset(
        each.offset for each in dis.get_instructions(code) if each.opname in _CHECKED
    )


def interrupt() -> None:
    """Does the same as Python's own handler of SIGINT."""
    raise KeyboardInterrupt


def count(function: Callable[[], Any]) -> int:
    """How many places a call passes."""
    places = Places()
    places.call(function)
    return places.passed

"""How processes share the tests: by whole files; tests that need the machine to themselves come
last.

Contexts, compiled kernels and built wheels are fixtures of a session or a file, so a file stays in
one process. Files that wait for what CI installs meanwhile come late. Tests that hold hundreds of
MiB, and explored ones that measure memory or time, run when the other processes have finished.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadFileScheduling

from tests.support.selection import LATE

#: Folders whose tests run one after the other, with no test beside them.
ALONE = ("tests/system/large/",)
#: These too when exploring: their measured forms.
ALONE_EXPLORING = ("tests/system/lifetimes/", "tests/system/stress/",
                   "tests/system/interrupts/test_random.py")
_ALONE = "alone"


class AloneLast(LoadFileScheduling):
    """xdist's scheduling by files: the LATE ones after the others, and one unit of work, ALONE, at
    the end."""

    def _split_scope(self, nodeid: str) -> str:
        alone = ALONE + (ALONE_EXPLORING if self.config.option.explore else ())
        return _ALONE if nodeid.startswith(alone) else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        for unit in [unit for unit in self.workqueue if unit.startswith(LATE)]:
            self.workqueue.move_to_end(unit)
        if _ALONE in self.workqueue:
            self.workqueue.move_to_end(_ALONE)
        if next(iter(self.workqueue)) != _ALONE or self._has_machine(node):
            super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        super()._reschedule(node)
        # A process keeps its last test back until it has another one, or is to stop.
        if self._pending_of(self.assigned_work[node]) == 1:
            super()._reschedule(node)

    def _has_machine(self, node: Any) -> bool:
        """Whether no other process has tests left; if two would wait for each other, one of them
        goes on."""
        others = [other for other in self.nodes if other is not node]
        if not any(self._pending_of(self.assigned_work[other]) for other in others):
            return True
        if not all(other.shutting_down for other in others):
            node.shutdown()
        return False

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        self._offer_the_rest()

    def remove_node(self, node: Any) -> str | None:
        """The test in which the process crashed, if it had tests left. The others run elsewhere.

        xdist's own method waits for ever once a crashed process had finished a file, and runs the
        test that crashed again and again.
        """
        left = self.assigned_work.pop(node)
        crashed = next((name for tests in left.values() for name in tests if not tests[name]), None)
        for unit, tests in left.items():
            if crashed in tests:
                tests[crashed] = True
            if not all(tests.values()):
                self.workqueue[unit] = tests
        for other in self.nodes:
            self._reschedule(other)
        self._offer_the_rest()
        return crashed

    def _offer_the_rest(self) -> None:
        """A process that waits for the others isn't asked again because of its own results."""
        if list(self.workqueue) == [_ALONE]:
            for node in self.nodes:
                if self.workqueue:
                    self._reschedule(node)

"""What a timeline orders: small records, one per call of the API.

``fail`` takes any exception; what the API raises passes, the rest becomes OperationError at the
reads of what should have been written, and UnknownError for reading and creating (§8.3).
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.compiler.program import GraphReport, Program
from webnn_vk.driver.errors import DriverError
from webnn_vk.support.errors import DOMException, OperationError, UnknownError

from .staging import Reservation
from .storage import Storage
from .throttle import Cost
from .workspace import Workspace

_log = logging.getLogger("webnn_vk")


def _as(kind: type[DOMException], error: Exception) -> Exception:
    if isinstance(error, DOMException):
        return error
    wrapped = kind(f"{type(error).__name__}: {error}")
    if isinstance(error, (MemoryError, DriverError)):
        # Its traceback would hold what failed, when memory may be what is missing.
        error = error.with_traceback(None)
    wrapped.__cause__ = error
    return wrapped


@dataclass(slots=True)
class Allocate:
    """Find a promised storage's memory when all work before is over."""

    storage: Storage
    exportable: bool = False

    def fail(self, error: Exception) -> None:
        self.storage.error = _as(UnknownError, error)


@dataclass(slots=True)
class Write:
    """Replace a tensor's bytes; ``data`` belongs to the record and is not changed by anyone.

    ``staged`` is transfer memory that holds the data already. ``part``: the bytes (offset, size)
    to replace, all of them when None. ``fresh``: no work before it uses the memory, so that the
    host may write to it in place where it can. ``held``: the room that the data takes while it
    waits (``staging``).
    """

    storage: Storage
    data: np.ndarray | None
    staged: Any = None
    part: tuple[int, int] | None = None
    fresh: bool = False
    held: Reservation | None = None

    def fail(self, error: Exception) -> None:
        self.storage.error = _as(OperationError, error)


@dataclass(slots=True)
class Read:
    """Copy a tensor's bytes, or a ``part`` (offset, size) of them, out: ``done`` gets them as a
    uint8 array, or ``failed`` the error. ``last``: no work behind it uses the memory, so that the
    host may read it in place where it can."""

    storage: Storage
    done: Callable[[np.ndarray], Any]
    failed: Callable[[Exception], Any]
    part: tuple[int, int] | None = None
    last: bool = False

    def fail(self, error: Exception) -> None:
        self.failed(_as(UnknownError, error))


class Executable(Protocol):
    """A program on one device, ready to run once it is set up."""

    program: Program
    #: Seconds by stage.
    build_seconds: dict[str, float]
    #: What one dispatch takes; the order of work keeps it.
    cost: Cost
    #: Whether the host computes some of its steps.
    on_host: bool
    #: Memory for runs that nothing else sees; None where keeping it gains nothing.
    workspace: Workspace | None
    #: The SPIR-V of its kernels.
    modules: Mapping[KernelSpec, bytes]
    #: The program's, with what computes each CPU step.
    report: GraphReport

    def set_up(self, order: Order, *after: Work) -> None:
        """Queue, on ``order``, the work that has to be over before the first dispatch (constants
        uploaded and packed), and ``after`` behind it. To be called once; from then on the constants
        that the device holds are nowhere else in the library."""

    def setup_error(self) -> Exception | None:
        """What the set-up failed with, once it is over."""

    def contents(self) -> Mapping[int, Storage | np.ndarray]:
        """What the set-up has put in place and every dispatch reads, by slot: memory to be read in
        the order of work, or the bytes."""


@dataclass(slots=True)
class RunGraph:
    """Run a graph on tensors' memory, by name."""

    executable: Executable
    inputs: Mapping[str, Storage]
    outputs: Mapping[str, Storage]

    def fail(self, error: Exception) -> None:
        error = _as(OperationError, error)
        for storage in self.outputs.values():
            storage.error = error


@dataclass(slots=True)
class Run:
    """Call ``function`` when all work before is done; ``failed`` if it never will be."""

    function: Callable[[], Any]
    failed: Callable[[Exception], Any]

    def fail(self, error: Exception) -> None:
        self.failed(_as(UnknownError, error))


@dataclass(slots=True)
class Submit:
    """Run command buffers that the user recorded on the same device (``webnn_vk.gpu``).

    ``writes`` are the memories that they change, ``reads`` those whose contents they need; ``keep``
    lives until they are done. ``wait`` and ``signal`` are semaphores with values.
    """

    recordings: Sequence[Any]
    writes: Sequence[Storage] = ()
    keep: Any = None
    failed: Callable[[Exception], Any] | None = None
    reads: Sequence[Storage] = ()
    wait: Sequence[tuple[Any, int]] = ()
    signal: Sequence[tuple[Any, int]] = ()
    #: By who has the memories to itself (see ``Lend``).
    by_holder: bool = False

    def fail(self, error: Exception) -> None:
        error = _as(OperationError, error)
        for storage in self.writes:
            storage.error = error
        if self.failed is not None:
            self.failed(error)


@dataclass(slots=True)
class Await:
    """Go on when ``wait`` returns: how one timeline is ordered behind another by the host. What
    was queued before has reached the device by then."""

    wait: Callable[[], Any]

    def fail(self, error: Exception) -> None:
        pass  # what comes behind it fails by itself


class Order(Protocol):
    """Something that takes work in a strict order. Compared by identity."""

    def enqueue(self, *works: Work) -> None:
        """Append work in order."""


@dataclass(slots=True)
class SetUp:
    """Fill ``writes`` once from ``reads``: the recording that ``record`` makes, when the memory of
    both has been found, is run and given up."""

    record: Callable[[], Any]
    reads: Sequence[Storage]
    writes: Sequence[Storage]
    failed: Callable[[Exception], Any]

    def fail(self, error: Exception) -> None:
        error = _as(OperationError, error)
        for storage in self.writes:
            storage.error = error
        self.failed(error)


@dataclass(slots=True)
class Lend:
    """The stream may not use ``storage`` from here until ``Return``. A call that found the storage
    free, but queues its work after this record, fails."""

    storage: Storage

    def fail(self, error: Exception) -> None:
        pass  # the stream takes no more work


@dataclass(slots=True)
class Return:
    """``storage`` is the stream's again."""

    storage: Storage

    def fail(self, error: Exception) -> None:
        pass  # the stream takes no more work


@dataclass(slots=True)
class Refuse:
    """In place of work on memory that its stream had lent by then."""

    storages: Sequence[Storage]
    failed: Callable[[Exception], Any] | None

    def fail(self, error: Exception) -> None:
        error = _as(OperationError, error)
        for storage in self.storages:
            storage.error = error
        if self.failed is not None:
            self.failed(error)
        elif not self.storages:
            _log.error("nothing was written: %s", error)


def refused(work: Any, lent: Collection[weakref.ref[Storage]]) -> Refuse:
    """What becomes of work on memory that is ``lent``: who reads what it should have written learns
    of it, but for who has the memory now."""
    if isinstance(work, RunGraph):
        return Refuse([s for s in work.outputs.values() if weakref.ref(s) not in lent], None)
    if isinstance(work, Submit):
        return Refuse([s for s in work.writes if weakref.ref(s) not in lent], work.failed)
    return Refuse((), work.failed if isinstance(work, Read) else None)


#: What such work fails with.
LENT = "while the call was under way, another one gave the memory to someone for himself"

Work = Allocate | Write | Read | RunGraph | Run | Submit | Await | SetUp | Lend | Return | Refuse

"""The records that a timeline orders: small, one per call of the API.

``fail`` takes any exception. The API's own exceptions are kept; others become OperationError at
reads of the memory that should have been written, and UnknownError for reading and creating (§8.3).
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.compiler.program import GraphReport, Program
from webnn_vk.driver.errors import DriverError
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import DOMException, OperationError, UnknownError

from .engine import Refused
from .staging import Reservation
from .storage import Storage, again
from .throttle import Cost
from .workspace import Workspace

_log = logging.getLogger("webnn_vk")


def _as(kind: type[DOMException], error: Exception) -> Exception:
    if isinstance(error, DOMException):
        return error
    wrapped = kind(f"{type(error).__name__}: {error}")
    if isinstance(error, (MemoryError, DriverError)):
        # Its traceback would keep the failed objects alive, when memory may be short.
        error = error.with_traceback(None)
    wrapped.__cause__ = error
    return wrapped


def _fail(
    error: Exception, writes: Iterable[Storage], failed: Callable[[Exception], Any] | None = None
) -> None:
    """The memory that work should have written gets the error, and the function to call, if any."""
    error = _as(OperationError, error)
    for storage in writes:
        storage.error = error
    if failed is not None:
        failed(error)


class _Silent:
    """Work that only orders: the work behind it fails by itself."""

    __slots__ = ()

    def fail(self, error: Exception) -> None:
        pass


@dataclass(slots=True)
class Allocate:
    """Allocate a promised storage's memory when all work before is over."""

    storage: Storage
    exportable: bool = False

    def fail(self, error: Exception) -> None:
        self.storage.error = _as(UnknownError, error)


@dataclass(slots=True)
class Write:
    """Replace a tensor's bytes; ``data`` belongs to the record and is not changed.

    ``staged`` are pieces of transfer memory that hold the data already. ``part``: the bytes
    (offset, size) to replace, all of them if None. ``fresh``: no work before it uses the memory, so
    that the host may write to it in place if it can. ``waited``: the caller waits for the end, so
    that an idle device's memory can be written in place, too. ``held``: the data's reservation
    while it waits (``staging``).
    """

    storage: Storage
    data: np.ndarray | None
    staged: Sequence[Any] = ()
    part: tuple[int, int] | None = None
    fresh: bool = False
    waited: bool = False
    held: Reservation | None = None

    def fail(self, error: Exception) -> None:
        _fail(error, (self.storage,))


@dataclass(slots=True)
class Read:
    """Copy a tensor's bytes, or a ``part`` (offset, size) of them, out: ``done`` gets them as a
    uint8 array, or ``failed`` the error. ``last``: no later work uses the memory, so that the host
    may read it in place if it can. ``into``: called when the first bytes are there, returns the
    array for them, which ``done`` gets, or None if they are not wanted any more."""

    storage: Storage
    done: Callable[[np.ndarray], Any]
    failed: Callable[[Exception], Any]
    part: tuple[int, int] | None = None
    last: bool = False
    into: Callable[[], np.ndarray | None] | None = None

    def target(self, size: int) -> np.ndarray | None:
        """The array for the bytes that were read; None: they are not wanted any more."""
        return np.empty(size, np.uint8) if self.into is None else self.into()

    def fail(self, error: Exception) -> None:
        if self.storage.error is not None and not isinstance(error, DOMException):
            error = again(self.storage.error)  # what should have written the memory failed with it
        self.failed(_as(UnknownError, error))


class Executable(Protocol):
    """A program on one device, ready to run once it is set up."""

    program: Program
    #: Seconds by stage.
    build_seconds: dict[str, float]
    #: The cost of one dispatch; the order of work keeps it.
    cost: Cost
    #: Whether the host computes some of its steps.
    on_host: bool
    #: Memory for runs that nothing else sees; None if keeping it gains nothing.
    workspace: Workspace | None
    #: Outputs that kernels write, each element once and without atomics, and no step reads.
    written_only: frozenset[str]
    #: The SPIR-V of its kernels.
    modules: Mapping[KernelSpec, bytes]
    #: What an engine refused in runs; the executables of one graph for other sizes share it.
    refused: Refused

    @property
    def report(self) -> GraphReport:
        """The program's segments, with the code that computes each CPU step now."""

    def set_up(self, order: Order, *after: Work) -> None:
        """Queue, on ``order``, the work that has to be over before the first dispatch (constants
        uploaded and packed), and ``after`` behind it; a GPU does this while its driver makes the
        other pipelines. To be called once; from then on the library holds no other copy of
        constants on the device. KernelsRefused as by ``Device.load``."""

    def at(self, program: Program, order: Order) -> Executable:
        """The executable for a program that differs from this one's only in sizes: with the same
        constants and, on a device, pipelines and memory of intermediates. What has to be over
        before its first dispatch is queued on ``order``."""

    def setup_error(self) -> Exception | None:
        """The error of the set-up, once it is over."""

    def contents(self) -> Mapping[int, Storage | np.ndarray]:
        """The results of the set-up that every dispatch reads, by slot: memory to be read in the
        order of work, or bytes."""


@dataclass(slots=True)
class RunGraph:
    """Run a graph on tensors' memory, by name. ``held``: the reservation of the inputs' data, if
    the host has written it to their memory. ``failed`` gets the error."""

    executable: Executable
    inputs: Mapping[str, Storage]
    outputs: Mapping[str, Storage]
    held: Reservation | None = None
    failed: Callable[[Exception], Any] | None = None

    def fail(self, error: Exception) -> None:
        _fail(error, self.outputs.values(), self.failed)


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
    #: The memories' exclusive holder (see ``Lend``).
    by_holder: bool = False

    def fail(self, error: Exception) -> None:
        _fail(error, self.writes, self.failed)


@dataclass(slots=True)
class Await(_Silent):
    """Continue when ``wait`` returns: this is how the host orders one timeline after another.
    Earlier work has reached the device by then."""

    wait: Callable[[], Any]


class Order(Protocol):
    """Takes work in a strict order. Compared by identity."""

    def enqueue(self, *works: Work) -> None:
        """Append work in order."""


@dataclass(slots=True)
class SetUp:
    """Fill ``writes`` once from ``reads``: the recording that ``record`` makes, once the memory of
    both is allocated, is run and freed."""

    record: Callable[[], Any]
    reads: Sequence[Storage]
    writes: Sequence[Storage]
    failed: Callable[[Exception], Any]

    def fail(self, error: Exception) -> None:
        _fail(error, self.writes, self.failed)


@dataclass(slots=True)
class Lend(_Silent):
    """From here until ``Return`` the stream may not use ``storage``. A call that found the storage
    free, but queues its work after this record, fails."""

    storage: Storage


@dataclass(slots=True)
class Return(_Silent):
    """``storage`` is the stream's again."""

    storage: Storage


@dataclass(slots=True)
class Refuse:
    """Replaces work on memory that its stream had lent by then."""

    storages: Sequence[Storage]
    failed: Callable[[Exception], Any] | None

    def fail(self, error: Exception) -> None:
        _fail(error, self.storages, self.failed)
        if self.failed is None and not self.storages:
            _log.error("nothing was written: %s", error)


def refused(work: Any, lent: Collection[weakref.ref[Storage]]) -> Refuse:
    """Fails work on memory that is ``lent``: readers of the memory it should have written get the
    error, except the memory's holder."""
    if isinstance(work, RunGraph):
        free = [s for s in work.outputs.values() if weakref.ref(s) not in lent]
        return Refuse(free, work.failed)
    if isinstance(work, Submit):
        return Refuse([s for s in work.writes if weakref.ref(s) not in lent], work.failed)
    return Refuse((), work.failed if isinstance(work, Read) else None)


#: The error of such work.
LENT = "while the call was under way, another one gave the memory to someone for himself"

Work = Allocate | Write | Read | RunGraph | Run | Submit | Await | SetUp | Lend | Return | Refuse

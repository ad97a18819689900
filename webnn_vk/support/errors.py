"""The exceptions of the API.

    Exception
    ├── TypeError                  wrong argument, shape, data type or descriptor
    └── DOMException
        ├── InvalidStateError      a builder, graph, tensor or context used after its end
        ├── NotSupportedError      nothing on this machine can do it
        ├── OperationError         the device could not carry it out (out of memory, …)
        ├── UnknownError           anything the specification does not name
        └── SecurityError
"""

from __future__ import annotations

import re
from collections.abc import Iterable


class DOMException(Exception):
    """Base of the errors that WebIDL calls DOMException; ``name`` is the IDL's name."""

    @property
    def name(self) -> str:
        """The IDL's name of the error, "InvalidStateError" for example."""
        return type(self).__name__


class InvalidStateError(DOMException):
    """The object was destroyed, lost, or has already built its graph."""


class NotSupportedError(DOMException):
    """The operation is not supported by this device or this machine."""


class OperationError(DOMException):
    """The device failed to carry out an operation, for example for lack of memory."""


class UnknownError(DOMException):
    """The operation failed for a reason that the specification doesn't name."""


class SecurityError(DOMException):
    """The operation is not allowed here."""


def shortage_error(error: Exception, what: str) -> Exception:
    """The OperationError for a resource that the system lacks; other errors unchanged. ``what``
    names the call."""
    if isinstance(error, MemoryError):
        return OperationError(f"{what}: out of memory{f': {error}' if error.args else ''}")
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        return OperationError(f"{what}: {error}")
    return error


def sanitize(text: str) -> str:
    """``text`` with control and bidirectional characters escaped, fit for a message.

    Labels and names are chosen by users and may come from model files (§ Security of the draft).
    """
    return "".join(c if c.isprintable() and c not in _BIDI else ascii(c)[1:-1] for c in text)


def reason(error: BaseException) -> str:
    """An error's text, for the message of another; its type if it has none. It may come from a
    caller's object, with any text."""
    try:
        text = sanitize(str(error))
    except Exception:
        text = ""
    return text or type(error).__name__


def nearest(word: str, words: Iterable[str]) -> str:
    """The addition to a message about an unknown name: the known names that it may stand for. The
    IDL's spelling (convTranspose2d) counts as near."""
    import difflib  # only for messages

    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()
    near = difflib.get_close_matches(snake, list(words))
    return f"; did you mean {' or '.join(near)}?" if near else ""


# str.isprintable() is False for most format characters already; these stay printable in some
# Unicode versions, so they are named.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class DestroyedTensorError(InvalidStateError, TypeError):
    """A destroyed tensor was used. The draft's steps say TypeError, the web-platform-tests expect
    InvalidStateError: this is both."""

    name = "InvalidStateError"  # type: ignore[assignment]

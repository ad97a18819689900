"""What can go wrong with the files of a model."""

from __future__ import annotations

from webnn_vk.support.errors import NotSupportedError


class InvalidModelError(ValueError):
    """The folder or file holds no valid model: something is missing, damaged or contradictory."""


class UnsupportedModelError(NotSupportedError):
    """A valid model of an architecture, or with an option, that this package doesn't implement."""

"""What can go wrong with a folder that holds a model."""

from __future__ import annotations

from webnn_vk.support.errors import NotSupportedError


class InvalidModelError(ValueError):
    """The folder holds no valid model: a file is missing or damaged, or files contradict each
    other."""


class UnsupportedModelError(NotSupportedError):
    """A valid model of an architecture, or with an option, that this package doesn't implement."""

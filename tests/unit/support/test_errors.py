"""Errors and their text."""

import pytest

from webnn_vk import InvalidStateError
from webnn_vk.support.errors import DestroyedTensorError, sanitize


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain näme 名 x", "plain näme 名 x"),
        ("a\nb\tc\x1b[31m", r"a\nb\tc\x1b[31m"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("\u200e\u061c\ud800", r"\u200e\u061c\ud800"),
        ("\x00\x7f\x85", r"\x00\x7f\x85"),
    ],
)
def test_names_cannot_draw_over_a_message(text, shown):
    assert sanitize(text) == shown


def test_a_destroyed_tensor_is_both_errors():
    error = DestroyedTensorError("gone")
    assert isinstance(error, InvalidStateError) and isinstance(error, TypeError)
    assert error.name == "InvalidStateError" == InvalidStateError("x").name

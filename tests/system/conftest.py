"""For all tests of the library as a whole."""

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def little_to_collect() -> None:
    """Tests of memory collect often, and search all that earlier files have left alive."""
    gc.collect()
    gc.freeze()

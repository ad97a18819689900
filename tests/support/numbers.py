"""Random numbers that a name decides: a test draws the same alone, in any order, in any process."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from tests.support import selection


def generator(name: str) -> np.random.Generator:
    """A generator seeded by this text. Not by its `hash()`, which differs from process to process.
    """
    digest = hashlib.sha256(name.encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """The running test's own generator, seeded by the run's seed and the test's name."""
    return generator(f"{selection.seed()} {request.node.nodeid}")

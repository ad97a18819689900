"""The random examples of hypothesis depend on the seed of the run and on the test's name only.

By default they would also depend on the time (deadlines, a database of earlier failures, a check of
how long drawing takes) and on the modules that happen to be imported: one draw in twenty is a
constant out of their sources.
"""

from __future__ import annotations

import os

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from tests.support import selection

#: Examples of a property that doesn't say how many.
FIXED, EXPLORING = 50, 500

_constants = providers._local_constants


def without_local_constants() -> None:
    """From now on this process draws no constants out of imported modules."""
    assert not len(_constants), "examples were drawn before"
    providers._get_local_constants = lambda: _constants


def configure(config: pytest.Config) -> None:
    without_local_constants()
    for name, examples in (("fixed", FIXED), ("explore", EXPLORING)):
        hypothesis.settings.register_profile(
            name, deadline=None, max_examples=examples, database=None, derandomize=False,
            suppress_health_check=[hypothesis.HealthCheck.too_slow],
        )
    by_default = "explore" if config.option.explore else "fixed"
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or by_default)


def seed_for(item: pytest.Item) -> None:
    """The examples of this test are drawn from its name, unless the command line gives a seed."""
    if item.config.option.hypothesis_seed is None:
        drawn = selection.chance("hypothesis", item.nodeid).getrandbits(64)
        hypothesis.core.global_force_seed = drawn

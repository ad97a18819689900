"""RADV's null device, if it is installed."""

import pytest

from tests.support import judges
from webnn_vk.codegen.isa import NoDriver, manifest


@pytest.fixture(scope="session")
def radv():
    try:
        manifest()
    except NoDriver as error:
        judges.missing(str(error))

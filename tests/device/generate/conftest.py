"""A small model with a tokenizer, for tests of texts and sequences."""

from __future__ import annotations

import pytest

from tests.support.text_models import text_folder
from webnn_vk import MLContext
from webnn_vk.generate import Model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return text_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def model(folder, context: MLContext):
    return Model.load(folder, context)

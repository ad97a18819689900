"""Whole models compiled for every stored profile: changes show as a diff of text. For the profiles,
see `tests/support/profiles`.

    pytest tests/unit/compiler/program/test_golden_programs.py --update-golden
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import webnn_vk
from tests.support import models
from tests.support.profiles import NAMES, stored_profile
from tests.support.program_text import describe
from webnn_vk import Settings
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.compiler.program.verify import verify

FOLDER = Path(__file__).parents[1] / "goldens"
GRAPHS = {"minilm": models.minilm, "mobilenet_v2": models.mobilenet, "lstm": models.lstm}


@pytest.fixture(scope="module")
def graphs() -> Iterator[dict]:
    """Each model's graph, made once."""
    with webnn_vk.ml.create_context(settings=Settings(device="cpu")).result() as context:
        yield {name: make(context) for name, make in GRAPHS.items()}


@pytest.mark.parametrize("profile", NAMES)
@pytest.mark.parametrize("name", GRAPHS)
def test_program(graphs, golden, name, profile):
    program, _ = compile_program(graphs[name], Target(stored_profile(profile)))
    verify(program)
    golden(f"../goldens/{name}-{profile}.txt", describe(program))


def test_every_profile_has_its_golden_files():
    wanted = {f"{name}-{profile}.txt" for name in GRAPHS for profile in NAMES}
    assert {path.name for path in FOLDER.glob("*.txt")} == wanted

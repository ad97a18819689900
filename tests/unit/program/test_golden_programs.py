"""Whole models compiled for every stored profile: what changes shows as a diff of text."""

from collections.abc import Iterator

import pytest

import webnn_vk
from tests.support import golden, models
from tests.support.profiles import NAMES, stored_profile
from webnn_vk import Settings
from webnn_vk.program import Target, compile_program
from webnn_vk.program.text import describe
from webnn_vk.program.verify import verify

GRAPHS = {"minilm": models.minilm, "mobilenet_v2": models.mobilenet, "lstm": models.lstm}


@pytest.fixture(scope="module")
def graphs() -> Iterator[dict]:
    """Each model's graph, made once."""
    with webnn_vk.ml.create_context(settings=Settings(device="cpu")).result() as context:
        yield {name: make(context) for name, make in GRAPHS.items()}


@pytest.mark.parametrize("profile", NAMES)
@pytest.mark.parametrize("name", GRAPHS)
def test_program(graphs, name, profile, pytestconfig):
    program, _ = compile_program(graphs[name], Target(stored_profile(profile)))
    verify(program)
    golden.compare(pytestconfig, f"{name}-{profile}.txt", describe(program))


def test_every_profile_has_its_golden_files():
    wanted = {f"{name}-{profile}.txt" for name in GRAPHS for profile in NAMES}
    assert {path.name for path in golden.FOLDER.glob("*.txt")} == wanted


def test_a_difference_fails(pytestconfig, monkeypatch, tmp_path):
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    (tmp_path / "x.txt").write_text("one\ntwo\n")
    if pytestconfig.getoption("--update-golden"):
        pytest.skip("nothing is compared")
    golden.compare(pytestconfig, "x.txt", "one\ntwo\n")
    with pytest.raises(pytest.fail.Exception, match=r"-two\n\+three"):
        golden.compare(pytestconfig, "x.txt", "one\nthree\n")
    with pytest.raises(pytest.fail.Exception, match="is missing"):
        golden.compare(pytestconfig, "y.txt", "")

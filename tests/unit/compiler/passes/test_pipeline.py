"""The pass runner, on graphs and on any object that verifies itself and has a text."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import webnn_vk
from tests.conformance.differential.graphs import graphs
from tests.support.graphs import assert_same, evaluate, graph_input, graph_of
from tests.support.profiles import stored_profile
from webnn_vk import MLGraphBuilder, Settings
from webnn_vk.compiler.ir import Emitter
from webnn_vk.compiler.passes import (
    DEVICE_PASSES,
    HOST_PASSES,
    ORDER,
    Compilation,
    Dump,
    Pass,
    check_skipped,
    remove_dead_code,
    run_passes,
)
from webnn_vk.compiler.passes.pipeline import Notes
from webnn_vk.compiler.program import Target, check_skip, compile_program
from webnn_vk.support.settings import verify_passes


@dataclass(frozen=True)
class Word:
    """The minimal interface for the runner: valid while it has no "x"."""

    text: str

    def verify(self) -> None:
        if "x" in self.text:
            raise ValueError(f"{self.text} has an x")

    def __str__(self) -> str:
        return self.text


def appending(letter: str, **options) -> Pass[Word]:
    return Pass(letter, lambda word, compilation: Word(word.text + letter), **options)


def run(passes, word: Word = Word(""), clean=lambda word: word, **options) -> tuple[str, Notes]:
    compilation = Compilation(**{"verify": False, **options})
    return run_passes(passes, word, compilation, clean).text, compilation.notes


def test_passes_run_in_order_and_are_timed():
    passes = [appending("a"), appending("b"), appending("a")]
    text, notes = run(passes)
    assert text == "aba"
    assert list(notes.seconds) == ["a", "b"] and all(s > 0 for s in notes.seconds.values())
    assert run(passes, skip=frozenset("a"))[0] == "b"


def test_a_required_pass_is_not_skipped():
    with pytest.raises(ValueError, match="b can't be left out"):
        run([appending("a"), appending("b", required=True)], skip=frozenset("b"))


def test_a_pass_that_breaks_the_graph_is_named():
    passes = [appending("a"), appending("x"), appending("b")]
    assert run(passes)[0] == "axb"
    with pytest.raises(ValueError, match="the graph after pass x: ax has an x"):
        run(passes, verify=True)
    with pytest.raises(ValueError, match="the graph after pass input: x has an x"):
        run(passes, Word("x"), verify=True)


def test_a_pass_runs_until_nothing_changes():
    def shorter(word: Word, compilation: Compilation) -> Word:
        return Word(word.text[1:]) if len(word.text) > 3 else word

    cleaned = []

    def clean(word: Word) -> Word:
        cleaned.append(word.text)
        return word

    assert run([Pass("shorter", shorter, rounds=5)], Word("abcde"), clean)[0] == "cde"
    # Only changed objects are cleaned up.
    assert cleaned == ["bcde", "cde"]
    assert run([Pass("shorter", shorter)], Word("abcde"))[0] == "bcde"


def test_a_pass_without_end_is_bounded():
    endless = appending("a", rounds=7)
    text, notes = run([endless])
    assert text == "a" * 7
    assert notes.of("a") == ("still found something to do after 7 rounds",)
    with pytest.raises(RuntimeError, match="pass a still found something to do after 7 rounds"):
        run([endless], verify=True)


def test_texts_are_dumped_in_order(tmp_path: Path):
    dump = Dump.within(tmp_path / "deep" / "er")
    run([appending("a"), appending("b"), appending("c")], texts=dump, skip=frozenset("b"))
    run([appending("d")], texts=dump)
    files = sorted(dump.folder.iterdir())
    assert [f.name for f in files] == [
        "00-input.txt", "01-a.txt", "02-c.txt", "03-input.txt", "04-d.txt"
    ]
    assert [f.read_text() for f in files] == ["\n", "a\n", "ac\n", "\n", "d\n"]
    other = Dump.within(tmp_path / "deep" / "er")
    assert (dump.folder.name, other.folder.name) == ("graph-0000", "graph-0001")
    # A folder that another process has made meanwhile is skipped.
    (dump.folder.parent / "graph-0003").mkdir()
    (dump.folder.parent / "graph-0004").mkdir()
    assert Dump.within(tmp_path / "deep" / "er").folder.name == "graph-0005"


@pytest.mark.parametrize("name", ["", "a-b", "../a", "A", "a b", "ä", "1a"])
def test_names_are_safe_for_files(name: str):
    with pytest.raises(ValueError, match="is no name for a pass"):
        Pass(name, lambda graph, compilation: graph)


def test_names_to_skip():
    passes = [appending("a"), appending("b", required=True), appending("c")]
    check_skipped(("a", "c"), passes)
    with pytest.raises(ValueError, match="no pass is called 'd'; one of a, c$"):
        check_skipped(("a", "d"), passes)
    with pytest.raises(ValueError, match="b can't be left out; one of a, c$"):
        check_skipped(("b",), passes)


def test_the_passes_that_can_be_skipped():
    check_skip(("absorb", "fold", "fuse", "fold_pad", "fold_batch_norm", "order"))
    for name in ("place", "decompose", "dead_code"):
        rest = "one of absorb, donate, fold, fold_batch"
        with pytest.raises(ValueError, match=f"{name} can't be left out; {rest}"):
            check_skip((name,))


@pytest.mark.parametrize(("name", "message"), [
    ("frobnicate", "no pass is called 'frobnicate'.*; one of absorb, donate, fold"),
    ("place", "place can't be left out"),
])
def test_wrong_names_are_an_error_when_the_context_is_created(monkeypatch, name, message):
    settings = Settings(device="cpu", skip_passes=[name])
    with pytest.raises(ValueError, match=message):
        webnn_vk.ml.create_context(settings=settings).result(60)
    monkeypatch.setenv("WEBNN_VK_SKIP_PASSES", name)
    with pytest.raises(ValueError, match=message):
        webnn_vk.ml.create_context().result(60)


def test_a_context_dumps_what_it_builds(tmp_path: Path):
    settings = Settings(device="cpu", dump=tmp_path)
    assert Settings.from_environment({"WEBNN_VK_DUMP": "/x"}).dump == Path("/x")
    with webnn_vk.ml.create_context(settings=settings).result(60) as context:
        for label in ("first", "../second"):
            builder = MLGraphBuilder(context)
            a = builder.input("a", {"data_type": "float32", "shape": [4]})
            builder.build({"y": builder.abs(a, label=label)}).result(60)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graph-0000", "graph-0001"]
    names = ["00-input.txt", "01-dead_code.txt", "02-legalize.txt", "03-fold.txt", "04-place.txt"]
    for folder, label in (("graph-0000", "first"), ("graph-0001", "../second")):
        files = sorted((tmp_path / folder).iterdir())
        assert [f.name for f in files] == names
        assert files[-1].read_text() == (
            f"input %a: float32[4]\n%0: float32[4] = abs [{label}](input=%a) on cpu "
            'because "the CPU device was chosen"\noutput y = %0\n'
        )


def test_a_dump_that_can_not_be_written_is_said(tmp_path: Path):
    (tmp_path / "file").write_text("")
    emit, a = Emitter(), graph_input("a", (4,))
    graph = graph_of(emit, {"y": emit.abs(a)}, a)
    with pytest.raises(OSError):
        compile_program(graph, Target(None, dump=tmp_path / "file"))


def test_verification_is_switched_on_for_tests(monkeypatch):
    assert verify_passes() and Compilation().verify
    for off in ("", "0"):
        monkeypatch.setenv("WEBNN_VK_VERIFY_PASSES", off)
        assert not verify_passes()


@given(graphs())
def test_the_pipelines_keep_the_meaning(random_graph):
    graph = random_graph.graph()
    before = str(graph)
    feeds = {f"x{i}": a for i, a in enumerate(random_graph.sources) if f"x{i}" in graph.inputs}
    expected = evaluate(graph, **feeds)
    device = Compilation(stored_profile(), force_cpu=frozenset({"tanh", "add"}), verify=True)
    for passes, compilation in (
        ((*DEVICE_PASSES, ORDER), device), (HOST_PASSES, Compilation(verify=True)),
    ):
        done = run_passes(passes, graph, compilation, remove_dead_code)
        assert {n.device for n in done.nodes} <= {"vulkan", "cpu"}
        assert all(n.origins for n in done.nodes)
        for name, array in evaluate(done, **feeds).items():
            np.testing.assert_array_equal(array, expected[name])
        # A second run changes nothing, and the given graph is unchanged.
        assert_same(run_passes(passes, done, replace(compilation, notes=Notes())), done)
        assert str(graph) == before

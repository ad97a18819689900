"""Folders whose files were changed at random: each is a model, or one line says what is wrong."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.counting import calls_of, peak_bytes_of
from tests.support.mutations import change_bytes
from tests.support.reference_decoder import CONFIGS, LLAMA, random_weights, write_folder
from tests.support.text_models import TEMPLATE, byte_tokenizer
from webnn_vk.generate import InvalidModelError, Model, UnsupportedModelError

ROPE = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
SMALL = {"num_hidden_layers": 1, "vocab_size": 260, "hidden_size": 8, "intermediate_size": 8,
         "num_attention_heads": 2, "num_key_value_heads": 1}
GPT2 = {**CONFIGS["gpt2"], "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 64,
        "vocab_size": 260}
SEEDS = {"llama": {**LLAMA, **SMALL, "rope_scaling": ROPE}, "gpt2": GPT2}
WEIGHTS, INDEX = "model-00001-of-00002.safetensors", "model.safetensors.index.json"
#: Files that are changed in their structure, and all that are changed in their bytes.
JSON_FILES = ("config.json", "generation_config.json", "tokenizer_config.json", INDEX)
FILES = (*JSON_FILES, "tokenizer.json", WEIGHTS)
VALUES = [
    None, True, False, 0, 1, -1, 2, 3, 8, 2**31, 2**63, 10**30, 0.5, -0.5, 1e308, float("nan"),
    float("inf"), "", "x", "gelu", "llama3", "\x1b[31m", "../x", [], [1], ["x"], {}, {"x": 1},
    "{% for i in range(10**9) %}{{ i }}{% endfor %}", "{{ ''.__class__ }}", "{% x", "a" * 10_000,
]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """The content of each folder's files."""
    found = {}
    for name, config in SEEDS.items():
        folder = tmp_path_factory.mktemp(name)
        write_folder(
            folder, config, random_weights(config, 1), shards=2,
            generation_config={"eos_token_id": [1, 2], "do_sample": True, "temperature": 0.7},
            tokenizer_config={"chat_template": TEMPLATE},
        )
        byte_tokenizer().save(str(folder / "tokenizer.json"))
        found[name] = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert set(FILES) <= found[name].keys()
    return found


places = st.integers(0, 2**16)
in_bytes = st.tuples(
    st.sampled_from(FILES),
    st.one_of(
        st.tuples(st.just("byte"), places, st.integers(0, 255)),
        st.tuples(st.just("large"), places, st.sampled_from([2**31, 2**40, 2**62, 2**64 - 1])),
        st.tuples(st.just("cut"), places, st.just(0)),
        st.tuples(st.just("remove"), places, st.integers(1, 16)),
        st.tuples(st.just("file"), st.just(0), st.just(0)),
    ),
)
in_structure = st.tuples(
    st.sampled_from(JSON_FILES),
    st.tuples(st.sampled_from(["set", "drop", "add"]), places, st.integers(0, len(VALUES) - 1)),
)
changes = st.tuples(
    st.sampled_from(sorted(SEEDS)), st.lists(st.one_of(in_bytes, in_structure), min_size=1,
                                             max_size=3),
)


def changed(data, what, place, value):
    """A file's content after one change; None: there is no file."""
    if what == "file":
        return None
    if what in ("set", "drop", "add"):
        return restructured(data, what, place, VALUES[value])
    # A safetensors file is changed in its header; any numbers behind it make a model.
    end = 8 + int.from_bytes(data[:8], "little") if data[8:9] == b"{" else len(data)
    made = bytearray(data)
    change_bytes(made, what, place % max(1, min(end, len(data))), value)
    return bytes(made)


def restructured(data, what, place, value):
    """JSON with one entry replaced, dropped or added."""
    try:
        content = json.loads(data)
    except ValueError:
        return data
    entries = []

    def visit(within):
        for key in within if isinstance(within, dict) else range(len(within)):
            entries.append((within, key))
            if isinstance(within[key], dict | list):
                visit(within[key])

    if isinstance(content, dict | list):
        visit(content)
    if not entries:
        return data
    within, key = entries[place % len(entries)]
    match what:
        case "set":
            within[key] = copy.deepcopy(value)
        case "drop":
            del within[key]
        case "add" if isinstance(within, dict):
            within[f"{key}_"] = copy.deepcopy(value)
    return json.dumps(content).encode()


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.timeout(7200)
def test_mutated_folders(seeds, cpu_context, tmp_path_factory, request):
    """With little work and memory."""
    folder = tmp_path_factory.mktemp("mutated")
    ends = {"model": 0, "refused": 0}

    @settings(
        max_examples=2_000 if request.config.option.explore else 200,
        suppress_health_check=list(HealthCheck),
    )
    @given(changes)
    def check(change):
        name, steps = change
        content = dict(seeds[name])
        for file, step in steps:
            if content[file] is not None:
                content[file] = changed(content[file], *step)
        for file, data in content.items():
            (folder / file).unlink(missing_ok=True)
            if data is not None:
                (folder / file).write_bytes(data)
        calls = []

        def load():
            try:
                Model.load(folder, cpu_context)
                ends["model"] += 1
            except (InvalidModelError, UnsupportedModelError) as error:
                assert str(error).isprintable() and len(str(error)) < 600
                ends["refused"] += 1

        # 20,000 calls and 64 MiB were seen, which is the buffer that the weights are read with.
        assert peak_bytes_of(lambda: calls.append(calls_of(load))) < 80 << 20
        assert calls[0] < 300_000

    check()
    assert min(ends.values()) > 3

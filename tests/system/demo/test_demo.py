"""`webnn-vk demo` as a user runs it. Each failure prints one clear line, never a traceback."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.support.drivers import require_vulkan

SENTENCES = """
The cat sleeps on the warm windowsill.

A goalkeeper saved the penalty in the last minute.
Interest rates went up again this month.
"""


@pytest.fixture
def sentences(tmp_path):
    path = tmp_path / "sentences.txt"
    path.write_text(SENTENCES, encoding="utf-8")
    return path


def webnn_vk(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "webnn_vk", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )


def assert_one_line(done, message):
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("webnn-vk: ") and re.search(message, line), line


def first_match(output):
    return re.findall(r"^ +\d\.\d{3}  (.+)$", output, re.MULTILINE)[0]


def test_best_match_on_vulkan(sentences, vulkan):
    done = webnn_vk("demo", "--file", sentences, "--device", "vulkan", "Who won the football game?")
    assert done.returncode == 0, done.stderr
    assert first_match(done.stdout) == "A goalkeeper saved the penalty in the last minute."
    assert re.search(r"^Device +\S.*Vulkan", done.stdout)
    steps = re.search(r"(\d+) on Vulkan, (\d+) on the CPU", done.stdout)
    assert int(steps[1]) > 0 and int(steps[2]) == 0
    difference = re.search(r"largest difference from the CPU device: (\S+)", done.stdout)
    assert float(difference[1]) < 1e-5
    assert re.search(r"build \d+\.\d\d s .*first run \d+\.\d\d s", done.stdout)
    assert re.search(r"steady run \d+\.\d\d s", done.stdout)
    assert done.stderr == ""  # no progress bar without a terminal


def test_own_sentences_on_the_cpu_device(sentences):
    done = webnn_vk("demo", "--file", sentences, "--device", "cpu", "--top", "1", "a sleepy pet")
    assert done.returncode == 0, done.stderr
    assert first_match(done.stdout) == "The cat sleeps on the warm windowsill."
    assert len(re.findall(r"^ +-?\d\.\d{3}  ", done.stdout, re.MULTILINE)) == 1
    assert "0 on Vulkan" in done.stdout


def test_json_alone(sentences):
    done = webnn_vk("demo", "--file", sentences, "--device", "cpu", "--json", "a sleepy pet")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["device"].startswith("CPU") and told["question"] == "a sleepy pet"
    assert told["matches"][0]["sentence"] == "The cat sleeps on the warm windowsill."
    scores = [match["score"] for match in told["matches"]]
    assert scores == sorted(scores, reverse=True) and len(scores) == 3  # all there are
    assert told["steps"]["vulkan"] == 0 < told["steps"]["cpu"]
    assert set(told["seconds"]) == {"weights", "build", "first", "steady", "question"}
    assert told["difference_from_cpu"] is None


def test_it_writes_text():
    """With the model of the repository, whose text is the documentation's."""
    done = webnn_vk("demo", "generate", "A graph", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert re.match(r" has \w+ [^\n]+\.\n$", done.stdout), done.stdout
    assert re.search(r"llama: 4 layers.*, \d+ tokens in ", done.stderr)
    told = json.loads(webnn_vk("demo", "generate", "A graph", "--device", "cpu", "--json").stdout)
    assert told["text"] + "\n" == done.stdout


def test_environment_picks_the_device(sentences):
    done = webnn_vk("demo", "--file", sentences, WEBNN_VK_DEVICE="cpu")
    assert done.returncode == 0, done.stderr
    assert re.match(r"Device +CPU", done.stdout)


def test_without_a_driver_the_cpu_device_is_used(sentences):
    done = webnn_vk(
        "demo",
        "--file",
        sentences,
        VK_DRIVER_FILES="/nonexistent.json",
        VK_ICD_FILENAMES="/nonexistent.json",
        WEBNN_VK_VALIDATE="0",
    )
    assert done.returncode == 0, done.stderr
    assert re.match(r"Device +CPU.*[Vv]ulkan", done.stdout)
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 1


def test_by_default_it_takes_what_create_context_takes(sentences):
    import webnn_vk as webnn

    settings = replace(webnn.Settings.from_environment(), device=None)
    wanted = webnn.ml.create_context(settings=settings).result().device_info
    done = webnn_vk("demo", "--file", sentences, WEBNN_VK_DEVICE="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith(f"Device    {wanted}")


@pytest.mark.parametrize("top", ["0", "-3", "many"])
def test_top_below_one_is_wrong_use(sentences, top):
    done = webnn_vk("demo", "--file", sentences, f"--top={top}")
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert re.search(r"^webnn-vk demo: error: .*'--top': .*(>=1|to 1|integer)", line)


def test_unknown_device(sentences):
    done = webnn_vk("demo", "--file", sentences, "--device", "voodoo 5")
    assert_one_line(done, "voodoo 5")


def test_missing_model_folder(sentences, tmp_path):
    done = webnn_vk("demo", "--file", sentences, "--model", tmp_path / "nowhere")
    assert_one_line(done, "model folder not found: .*nowhere")


def test_missing_model_file(sentences, tmp_path):
    done = webnn_vk("demo", "--file", sentences, "--model", tmp_path)
    assert_one_line(done, "model file not found: .*config.json")


def test_missing_sentences(tmp_path):
    done = webnn_vk("demo", "--file", tmp_path / "none.txt")
    assert_one_line(done, "cannot read the sentences: No such file or directory: .*none.txt")


def test_empty_and_binary_sentences(tmp_path):
    empty, binary = tmp_path / "empty.txt", tmp_path / "binary.txt"
    empty.write_text("\n\n")
    binary.write_bytes(b"\xff\xfe\x00")
    assert_one_line(webnn_vk("demo", "--file", empty), "has no sentences")
    assert_one_line(webnn_vk("demo", "--file", binary), "not UTF-8")


def test_a_question_that_is_no_text(sentences):
    done = webnn_vk("demo", "--file", sentences, "--device", "cpu", b"caf\xe9".decode(
        errors="surrogateescape"))
    assert_one_line(done, "the question is not UTF-8 text")


def test_names_that_are_no_text(tmp_path):
    name = b"\xff\xfe".decode(errors="surrogateescape")
    assert_one_line(webnn_vk("demo", "--file", tmp_path / name, "x"), "cannot read the sentences")
    assert_one_line(webnn_vk("demo", "--model", tmp_path / name, "x"), "model folder not found")
    assert_one_line(webnn_vk("demo", "--device", name, "x"), r"\\udcff\\udcfe")


def test_a_terminal_that_is_no_utf8(sentences):
    done = webnn_vk("demo", "--file", sentences, "--device", "cpu", "\u00fcber \u4e2d\u6587",
                    PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert "Question  \\xfcber \\u4e2d\\u6587" in done.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 100_000, "config.json is (nested too deeply|not JSON)"),
        ("[" * 100_000 + "]" * 100_000, "config.json is nested too deeply"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "config.json is nested too deeply"),
        ("[" * 900 + "]" * 900, "config.json holds no JSON object"),
        ('{"model_type": %s}' % ("[" * 900 + "]" * 900), "model_type is .*'bert' is supported"),
        ('{"model_type": "bert", "hidden_size": 1%s}' % ("0" * 5000), "config.json is not JSON"),
        ('{"model_type": "bert", "hidden_act": "gelu", "layer_norm_eps": NaN}',
         "layer_norm_eps is nan"),
        ("\x00", "config.json is not JSON"),
        (b"\xff\xfe", "config.json is not JSON"),
        ("", "config.json is not JSON"),
    ],
)
def test_configurations_that_are_none(sentences, tmp_path, content, message):
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"")
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "config.json").write_bytes(data)
    done = webnn_vk("demo", "--file", sentences, "--device", "cpu", "--model", tmp_path, "x")
    assert_one_line(done, message)
    assert len(done.stderr) < 1000


def test_a_configuration_of_endless_layers(sentences, tmp_path):
    import numpy as np
    from safetensors.numpy import save_file

    config = {key: 4 for key in (
        "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size",
        "max_position_embeddings", "type_vocab_size")}
    config |= {"model_type": "bert", "hidden_act": "gelu", "num_hidden_layers": 10**12}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text("{}")
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    done = webnn_vk("demo", "--file", sentences, "--device", "cpu", "--model", tmp_path, "x")
    assert_one_line(done, "model.safetensors lacks the weight embeddings")


def test_devices_are_listed():
    done = webnn_vk("devices")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^[* ] cpu  CPU", done.stdout, re.MULTILINE)
    require_vulkan()
    assert re.search(r"^[* ]   0  \S", done.stdout, re.MULTILINE)


def test_examples_are_found_and_varied():
    from webnn_vk.tools.demo import example_sentences, read_sentences

    sentences = read_sentences(example_sentences())
    assert len(sentences) == len(set(sentences)) >= 36

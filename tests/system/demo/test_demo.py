"""`webnn-vk demo` as a user runs it, failures included: one clear line, never a traceback."""

import os
import re
import subprocess
import sys

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
    assert done.stderr == ""  # no bar where there is no terminal


def test_own_sentences_on_the_cpu_device(sentences):
    done = webnn_vk("demo", "--file", sentences, "--device", "cpu", "--top", "1", "a sleepy pet")
    assert done.returncode == 0, done.stderr
    assert first_match(done.stdout) == "The cat sleeps on the warm windowsill."
    assert len(re.findall(r"^ +-?\d\.\d{3}  ", done.stdout, re.MULTILINE)) == 1
    assert "0 on Vulkan" in done.stdout


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

    wanted = webnn.ml.create_context(settings=webnn.Settings()).result().device_info
    done = webnn_vk("demo", "--file", sentences, WEBNN_VK_DEVICE="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith(f"Device    {wanted}")


@pytest.mark.parametrize("top", ["0", "-3", "many"])
def test_top_below_one_is_wrong_use(sentences, top):
    done = webnn_vk("demo", "--file", sentences, f"--top={top}")
    assert done.returncode == 2 and done.stdout == ""
    assert re.search(r"error: argument --top: .*(at least 1|whole number)", done.stderr)


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

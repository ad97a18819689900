"""Three trained networks read text in images: the text of the page, and images of any kind."""

import numpy as np
import pytest

from tests.support.trained import image_of, require
from webnn_vk.examples import text_reader
from webnn_vk.examples.draw_page import LINES
from webnn_vk.examples.images import open_image
from webnn_vk.examples.text_reader import TextReader, steps_of
from webnn_vk.tools.ocr_demo import example_page

pytest.importorskip("onnx")
Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module", autouse=True)
def weights():
    require(text_reader.DETECTION, text_reader.ORIENTATION, text_reader.RECOGNITION)


@pytest.fixture(scope="module")
def reader(engine_context):
    return TextReader(engine_context)


def texts(reader, image):
    return [line.text for line in reader.read(image)]


def test_the_page(reader):
    lines = reader.read(open_image(example_page()))
    assert sorted(line.text for line in lines) == sorted(LINES)
    assert all(line.confidence > 0.9 for line in lines)
    # The lines on the left, from top to bottom.
    straight = [line.text for line in lines if line.box.x < 500]
    assert straight == LINES[:8] + [LINES[8]]
    angles = {line.text: round(np.degrees(line.box.angle)) % 360 for line in lines}
    turned = {text: angles[text] for text in LINES[-3:]}
    assert turned == {"A little askew": 12, "Upside down": 180, "Upwards, too": 270}
    # Twelve lines and the pieces of a long one in few graphs.
    assert len(reader.recognition.shapes) <= 7 and len(reader.orientation.shapes) <= 2


def test_on_vulkan_without_a_step_on_the_cpu(vulkan_context):
    reader = TextReader(vulkan_context)
    assert texts(reader, image_of("Hello", (160, 64))) == ["Hello"]
    steps = steps_of(list(reader.networks.values()))
    assert steps["vulkan"] > 100 and steps["cpu"] == 0


def saved(tmp_path, image, name, **options):
    path = tmp_path / name
    image.save(path, **options)
    return open_image(path)


def test_kinds_of_images(reader, tmp_path):
    black, clear = (0, 0, 0, 255), (255, 255, 255, 0)
    grey = image_of("Grey 123", ink=0, ground=255, mode="L")
    sixteen = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    exif = Image.Exif()
    exif[0x112] = 6  # to be turned clockwise
    turned = image_of("Turned").rotate(90, expand=True)
    kinds = {
        "Grey 123": saved(tmp_path, grey, "grey.png"),
        "Clear": saved(tmp_path, image_of("Clear", ink=black, ground=clear, mode="RGBA"), "a.png"),
        "Light": saved(
            tmp_path, image_of("Light", ink="white", ground=(0, 0, 0, 0), mode="RGBA"), "b.png"
        ),
        "Four inks": saved(tmp_path, image_of("Four inks").convert("CMYK"), "c.jpg", quality=95),
        "Palette": saved(tmp_path, image_of("Palette").quantize(8), "p.gif"),
        "Turned": saved(tmp_path, turned, "turned.jpg", exif=exif, quality=95),
        "Dark": image_of("Dark", ink="white", ground="black"),
    }
    assert {name: texts(reader, image) for name, image in kinds.items()} == {
        name: [name] for name in kinds
    }
    assert texts(reader, saved(tmp_path, sixteen, "sixteen.png")) == ["Grey 123"]


@pytest.mark.parametrize("size", [(320, 96), (1, 1), (3000, 1), (1, 700)])
def test_no_text(reader, size):
    assert reader.read(Image.new("RGB", size, "white")) == []


def test_noise_is_no_text(reader):
    noise = np.random.default_rng(0).integers(0, 255, (96, 320, 3), np.uint8)
    assert reader.read(Image.fromarray(noise)) == []


def test_tiny_and_huge_images(reader):
    assert texts(reader, image_of("tiny", (64, 20), height=14)) == ["tiny"]
    assert texts(reader, image_of("Huge", (8000, 900), height=600)) == ["Huge"]
    assert max(max(shape) for shape in reader.detection.shapes) <= text_reader.LARGEST_SIDE

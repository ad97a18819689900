"""KernelSpec: validation, the layout of parameters, constants and bindings, identity."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest

from webnn_vk.codegen import spec as spec_module
from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param, SpecError
from webnn_vk.driver.device_profile import FEATURES

A, OUT = Buffer("a", "float32"), Buffer("out", "float32", "w")


def test_import_loads_neither_numpy_nor_vulkan_nor_jinja() -> None:
    code = (
        "import sys, webnn_vk.codegen, webnn_vk.codegen.spec\n"
        "print(sorted({'numpy', 'vulkan', 'jinja2', 'ctypes'} & set(sys.modules)))\n"
        "import webnn_vk.codegen.store, webnn_vk.codegen.archive\n"
        "print(sorted({'numpy', 'vulkan', 'jinja2', 'ctypes'} & set(sys.modules)))\n"
        "print(sorted(n for n in sys.modules if n.startswith('webnn_vk.')\n"
        "      and not n.startswith('webnn_vk.codegen')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # Of the rest of the package only leaf modules: properties, dataclasses, environment variables,
    # fork safety, names loaded on first use, and finding a clone's folders.
    leaves = ["cached_property", "dataclass", "environment", "forks", "lazy_names", "source_tree"]
    shown = str(["webnn_vk.support", *(f"webnn_vk.support.{leaf}" for leaf in leaves)])
    assert done.stdout.splitlines() == ["[]", "[]", shown]


def test_features_are_those_of_the_profile() -> None:
    assert spec_module.FEATURES <= set(FEATURES)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Buffer("a b", "float32"), "buffer name 'a b'"),
        (lambda: Buffer("a__b", "float32"), "buffer name"),
        (lambda: Buffer("a_", "float32"), "buffer name"),
        (lambda: Buffer("a;x", "float32"), "buffer name"),
        (lambda: Buffer("a", "float64"), "float64.*accepted: float32, float16"),
        (lambda: Buffer("a", "float32", "x"), "access 'x'; accepted: r, w, rw"),
        (lambda: Buffer("a", "float32", "r", 2), "width 2; accepted: 1, 4, 8"),
        (lambda: Buffer("a", "float32", "r", 8), "width 8 is for float16 with access r, not float"),
        (lambda: Buffer("a", "float16", "rw", 8), "width 8 .*, not float16 with access rw"),
        (lambda: Buffer("a", "int64", "r", 4), "width 4 does not exist for int64"),
        (lambda: Buffer("a", "float32", "r", 1, 0), "portions 0"),
        (lambda: Param("P"), "'P' is reserved"),
        (lambda: Param("n", "double"), "type 'double'; accepted: uint, int, float"),
        (lambda: Param("n", count=0), "count 0"),
        (lambda: Constant("LX"), "'LX' is reserved"),
        (lambda: Constant("BM", "uint", -1), "-1 does not fit in a 32-bit uint"),
        (lambda: Constant("BM", "uint", 1.5), "1.5 is no uint"),
        (lambda: KernelSpec("x.j2", (A,)), "template 'x.j2'"),
        (lambda: KernelSpec("../x.comp.j2", (A,)), "template"),
        (lambda: KernelSpec("x.comp.j2", (A, A)), "two of the buffers are called a"),
        (lambda: KernelSpec("x.comp.j2", (A,), (Param("n"), Param("n"))), "two of the parameters"),
        (
            lambda: KernelSpec("x.comp.j2", (A,), constants=(Constant("B"), Constant("B"))),
            "two of the constants are called B",
        ),
        (lambda: KernelSpec("x.comp.j2", (A,), options=(("spec", 1),)), "'spec' is reserved"),
        (lambda: KernelSpec("x.comp.j2", (A,), options=(("o", [1]),)), "option 'o': list"),
        (lambda: KernelSpec("x.comp.j2", (A,), options=(("o", float("nan")),)), "nan"),
        (
            lambda: KernelSpec("x.comp.j2", (A,), options=(("o", 1), ("o", 2))),
            "two of the options are called o",
        ),
        (lambda: KernelSpec("x.comp.j2", (A,), features={"warp"}), "features warp; known: "),
        (
            lambda: KernelSpec(
                "x.comp.j2", (A,), features={"denorm_preserve_f32", "denorm_flush_f32"}
            ),
            "denorm_flush_f32 and denorm_preserve_f32 exclude each other",
        ),
    ],
)
def test_nonsense_is_refused(make, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


def test_params_are_packed_in_order_without_gaps() -> None:
    spec = KernelSpec(
        "x.comp.j2", (A,), (Param("n"), Param("shift", "int", 3), Param("alpha", "float"))
    )
    block = spec.pack_params({"alpha": 0.5, "shift": (-1, 2, -(2**31)), "n": 2**32 - 1})
    assert block == struct.pack("<Iiiif", 2**32 - 1, -1, 2, -(2**31), 0.5)
    assert spec.param_bytes == len(block) == 20


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"s": (1, 2)}, "x.comp.j2: parameters: missing n \\(has: n, s\\)"),
        ({"n": 1, "s": (1, 2), "m": 1}, "unknown m"),
        ({"n": -1, "s": (1, 2)}, "'n': -1 does not fit in a 32-bit uint"),
        ({"n": 2**32, "s": (1, 2)}, "4294967296 does not fit"),
        ({"n": 1.0, "s": (1, 2)}, "1.0 is no uint"),
        ({"n": 1, "s": (1, 2, 3)}, "3 numbers given, 2 expected"),
        ({"n": 1, "s": 1}, "one number given, a sequence expected"),
        ({"n": 1, "s": "12"}, "str given"),
    ],
)
def test_params_that_do_not_fit(values, message: str) -> None:
    spec = KernelSpec("x.comp.j2", (A,), (Param("n"), Param("s", "uint", 2)))
    with pytest.raises(SpecError, match=message):
        spec.pack_params(values)


def test_long_params_go_to_a_buffer_bound_last() -> None:
    def spec(count: int) -> KernelSpec:
        return KernelSpec("x.comp.j2", (A, OUT), (Param("n", "uint", count),))

    assert KernelSpec("x.comp.j2", (A, OUT)).param_storage == "none"
    assert (spec(32).param_storage, spec(32).binding_count) == ("push", 2)
    assert (spec(33).param_storage, spec(33).binding_count) == ("buffer", 3)


def test_portions_take_consecutive_bindings_and_constants() -> None:
    spec = KernelSpec(
        "x.comp.j2", (Buffer("a", "int8", portions=3), A := Buffer("b", "int8"),
                      Buffer("out", "int8", "w", portions=2)),
        constants=(Constant("BM", default=32), Constant("scale", "float", 0.5)),
    )
    assert A in spec.buffers
    assert spec.bindings == {"a": 0, "b": 3, "out": 4}
    assert spec.binding_count == 6
    assert spec.constant_ids == {
        "LX": 0, "LY": 1, "LZ": 2, "PORTION_a": 3, "PORTION_out": 4, "BM": 5, "scale": 6,
    }
    ids, data = spec.pack_constants({"PORTION_a": 1024, "PORTION_out": 16, "LX": 32, "scale": 2})
    assert ids == (0, 1, 2, 3, 4, 5, 6)
    assert data == struct.pack("<IIIIIIf", 32, 1, 1, 1024, 16, 32, 2.0)
    with pytest.raises(SpecError, match="missing PORTION_a, PORTION_out"):
        spec.pack_constants({})
    with pytest.raises(SpecError, match="unknown BK"):
        spec.pack_constants({"PORTION_a": 16, "PORTION_out": 16, "BK": 1})
    with pytest.raises(SpecError, match="PORTION_a = 24; a multiple of 16"):
        spec.pack_constants({"PORTION_a": 24, "PORTION_out": 16})


def test_key_tells_specs_apart() -> None:
    """Values that are equal in Python but not in a template are kept apart too."""
    values = [1, True, 1.0, "1", (1,), ("1",), None]
    keys = {KernelSpec("x.comp.j2", (A,), options=(("o", value),)).key() for value in values}
    assert len(keys) == len(values)
    first = KernelSpec("x.comp.j2", (A,), options=(("p", 1), ("o", 2)), features={"int8", "int64"})
    again = KernelSpec("x.comp.j2", [A], options=[("o", 2), ("p", 1)], features=["int64", "int8"])
    assert first.key() == again.key()
    assert first == again and hash(first) == hash(again)
    assert len({KernelSpec("x.comp.j2", (A,), options=(("o", v),)) for v in values}) == len(values)
    assert first.option("p") == 1 and first.option("q", 5) == 5


def test_texels_are_bindings_of_a_format() -> None:
    buffers = (A, Buffer("t", "float32", width=4, load="texel"), OUT)
    spec = KernelSpec("copy.comp.j2", buffers)
    assert spec.texels == ((1, "rgba32f"),) and KernelSpec("copy.comp.j2", (A, OUT)).texels == ()
    assert KernelSpec.from_json(spec.to_json()).texels == spec.texels
    plain = KernelSpec("copy.comp.j2", (A, Buffer("t", "float32", width=4), OUT))
    assert plain != spec and plain.key() != spec.key()
    assert Buffer("t", "int32", load="texel").texel_format == "r32i"
    assert Buffer("t", "uint32", width=4, load="texel").texel_format == "rgba32ui"
    for wrong in ({"data_type": "float16"}, {"access": "rw"}, {"portions": 2}):
        fields = {"data_type": "float32", "access": "r", "width": 4, "load": "texel", **wrong}
        with pytest.raises(SpecError, match="texels are float32, int32, uint32 with access r"):
            Buffer("t", **fields)
    with pytest.raises(SpecError, match="load 'image'; accepted: storage, texel"):
        Buffer("t", "float32", load="image")

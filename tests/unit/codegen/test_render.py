"""Rendering is deterministic and strict, and uses only what the features allow."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys

import pytest

from tests.support.kernels import COPY, PRELUDE, compile_spec, templates, validate
from webnn_vk.codegen import render as render_module
from webnn_vk.codegen.render import RenderError, arithmetic_type, render, template_info
from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param

_COPY_SPEC = """KernelSpec(
    "copy.comp.j2",
    (Buffer("a", "float16", "r", 4, 2), Buffer("out", "int8", "rw"), Buffer("l", "int64")),
    (Param("n"), Param("s", "int", 40)), (Constant("BM", default=8),),
    (("vectors", False), ("int64", True)), frozenset({"int8", "int64", "float16"}),
)"""


def test_the_same_text_in_every_process() -> None:
    code = (
        "import hashlib\n"
        "from tests.support.kernels import COPY, templates\n"
        "from webnn_vk.codegen.render import render\n"
        "from webnn_vk.codegen.store import address\n"
        "from webnn_vk.codegen.spec import *\n"
        f"spec = {_COPY_SPEC}\n"
        "with templates(copy=COPY):\n"
        "    print(hashlib.sha256(render(spec).encode()).hexdigest(), address(spec).hex())\n"
        "    print(hashlib.sha256(spec.key().encode()).hexdigest())\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(printed) == 1 and len(printed.pop()) > 190


def test_options_are_variables_and_a_missing_one_is_an_error() -> None:
    text = PRELUDE + "void main() { store_out(0u, {{ expression }}); }\n"
    buffers = (Buffer("out", "float32", "w"),)
    with templates(fused=text):
        spec = KernelSpec("fused.comp.j2", buffers, options=(("expression", "w_exp(1.5)"),))
        assert "store_out(0u, w_exp(1.5));" in render(spec)
        validate(compile_spec(spec))
        with pytest.raises(RenderError, match="fused.comp.j2:2: 'expression' is undefined"):
            render(KernelSpec("fused.comp.j2", buffers))
        assert template_info("lib/prelude.glsl.j2").description.startswith("What every kernel")


def test_missing_and_broken_templates() -> None:
    with pytest.raises(RenderError, match="no template 'nosuch.comp.j2'"):
        render(KernelSpec("nosuch.comp.j2", ()))
    with templates(broken="line\n{% if %}\n"), pytest.raises(RenderError, match="broken.comp.j2:2"):
        render(KernelSpec("broken.comp.j2", ()))


def test_one_spec_with_everything_compiles() -> None:
    """Push constants or a parameter buffer, which are copied where there are texels, constants of
    each type, 64 bits without a buffer."""
    text = PRELUDE + (
        "void main() { uint i = invocation_index(); if (i >= P.n) return;\n"
        "float x = load_a(i) * P.scale * ratio + float(P.dims[i % {{ count }}u] + offset);\n"
        "store_out(i, w_to_float(w_add(w_to_i64(x), w_to_i64(BM)))); }\n"
    )
    with templates(everything=text):
        for count, features, a in itertools.product(
            (3, 40), (frozenset(), frozenset({"int64"})),
            (Buffer("a", "float16"), Buffer("a", "float32", width=4, load="texel")),
        ):
            spec = KernelSpec(
                "everything.comp.j2", (a, Buffer("out", "float32", "w")),
                (Param("n"), Param("dims", "int", count), Param("scale", "float")),
                (Constant("BM"), Constant("offset", "int", -3), Constant("ratio", "float", 2)),
                (("count", count), ("int64", True)), features,
            )
            validate(compile_spec(spec))
            assert ("push_constant" in render(spec)) == (count == 3)
            assert ("P_values P = P_block.values;" in render(spec)) == (a.load == "texel")


def test_extensions_follow_features() -> None:
    with templates(copy=COPY):
        def extensions(*features: str) -> set[str]:
            spec = KernelSpec(
                "copy.comp.j2", (Buffer("a", "int8"), Buffer("out", "float16", "w")), (Param("n"),),
                options=(("vectors", False),), features=frozenset(features),
            )
            return set(re.findall(r"#extension GL_\w+?_shader_(\w+)", render(spec)))

        assert extensions() == set()
        assert extensions("float16") == {"16bit_storage"}
        assert extensions("int8", "subgroup_vote") == {"8bit_storage", "subgroup_vote"}


def test_qualifiers_follow_access() -> None:
    with templates(copy=COPY):
        spec = KernelSpec(
            "copy.comp.j2",
            (Buffer("a", "float32"), Buffer("b", "int8", "w"), Buffer("out", "float32", "w"),
             Buffer("c", "float32", "rw")),
            (Param("n"),), options=(("vectors", False),),
        )
        found = dict(re.findall(r"binding = (\d)\) ([a-z ]+?) buffer", render(spec)))
    assert found == {"0": "restrict readonly", "1": "restrict", "2": "restrict writeonly",
                     "3": "restrict"}


def test_arithmetic_types() -> None:
    assert [arithmetic_type(t) for t in ("float16", "int8", "uint8", "int64", "uint64")] == [
        "float", "int", "uint", "I64", "U64",
    ]
    assert arithmetic_type("uint64", int64_native=True) == "uint64_t"
    with pytest.raises(RenderError, match="data type 'bool'"):
        arithmetic_type("bool")


def test_every_template_has_a_description() -> None:
    for name in render_module.templates():
        assert template_info(name).description, name

"""Origins of the lines of rendered GLSL, and errors that name them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench.isa.catalogue import catalogue
from tests.support.command_line import Command
from tests.support.kernels import templates
from webnn_vk.codegen import __main__ as command_line
from webnn_vk.codegen import origins as module
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.describe import table
from webnn_vk.codegen.origins import origins
from webnn_vk.codegen.render import SHADERS, RenderError, add_template_dir, own_templates, render
from webnn_vk.codegen.spec import Buffer, KernelSpec, Param
from webnn_vk.codegen.store import ShaderStore

#: A macro in its own file, a loop, and a condition, each with a mistake in turn.
MACROS = """{# Beside the template. #}
{% macro twice(x) -%}
  float doubled = 2.0 * {{ x }};

  doubled = doubled MACRO;
{%- endmacro %}
"""
OWN = """{# Doubles. #}
{% include "lib/prelude.glsl.j2" %}
{% from "own_macros.j2" import twice %}

void main() {
  uint i = invocation_index();
  {% for n in range(3) %}
  float part{{ n }} = {{ n }}.0
    + float(i) LOOP;
  {% endfor %}
  {% if true %}
  {{ twice("w_exp(part1)") }} AFTER
  {% endif %}
  store_y(i, doubled + part2);
}
"""
SPEC = KernelSpec("own.comp.j2", (Buffer("y", "float32", "w"),), (Param("count"),))
ARGUMENTS = ["--buffer", "y:float32:w", "--param", "count"]


def write_own(folder: Path, mistake: str = "") -> None:
    for name, text in (("own.comp.j2", OWN), ("own_macros.j2", MACROS)):
        for word in ("MACRO", "LOOP", "AFTER"):
            text = text.replace(word, "+ nowhere" if word == mistake else "")
        (folder / name).write_text(text.replace("AFTER", ""))


def random_specs() -> list[KernelSpec]:
    examples = [KernelSpec.from_json(entry["example"]) for entry in table().values()]
    drawn = random.Random(1)
    wide = frozenset({"float16", "int8", "int16", "int64"})
    emulated = catalogue(frozenset(), "matmul", "attention")
    native = catalogue(wide, "elementwise", "gather", "scatter", "softmax", "pool", "scan")
    return examples + drawn.sample(list(emulated), 60) + drawn.sample(list(native), 60)


@pytest.mark.explore
def test_every_line_of_the_library_s_kernels_is_found() -> None:
    """If the template's line has nothing to expand it equals the line of the GLSL."""
    texts: dict[str, list[str]] = {}
    literal = 0
    for spec in random_specs():
        lines, places = render(spec).splitlines(), origins(spec)
        assert len(places) == len(lines), spec.template
        for line, place in zip(lines, places, strict=True):
            if place == "function library":
                continue
            file, _, number = place.rpartition(":")
            if file not in texts:
                texts[file] = (SHADERS / file).read_text(encoding="utf-8").splitlines()
            written = texts[file][int(number) - 1]
            if "{{" not in written and "{%" not in written:
                assert written.strip() == line.strip(), place
                literal += 1
    assert literal > 5000 and {"matmul_tiled.comp.j2", "lib/prelude.glsl.j2"} <= texts.keys()


@pytest.mark.parametrize(("mistake", "place"), [
    ("MACRO", "own_macros.j2:5"), ("LOOP", "own.comp.j2:9"),
])
def test_an_error_names_the_template_s_line(tmp_path, capsys, monkeypatch, mistake, place) -> None:
    """In both command lines, followed by the compiler's line and the surrounding GLSL."""
    if find_compiler() is None:
        pytest.skip("no GLSL compiler")
    monkeypatch.chdir(tmp_path)
    write_own(tmp_path)
    assert command_line.main(["compile", "./own.comp.j2", *ARGUMENTS]) == 0
    write_own(tmp_path, mistake)
    assert command_line.main(["compile", "./own.comp.j2", *ARGUMENTS]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: own.comp.j2: the GLSL does not compile\n")
    (error, *_) = [line for line in told.splitlines() if "nowhere" in line]
    assert error.startswith(f"{place}: ") and "'nowhere' : undeclared identifier" in error
    number = int(error.removeprefix(f"{place}: ").split(":")[2])
    with own_templates():
        add_template_dir(tmp_path)
        line = render(SPEC).splitlines()[number - 1]
    assert "nowhere" in line and f">{number:5d} {line}" in told.splitlines()

    status, out, err = Command(capsys)("shader", "compile", "./own.comp.j2", *ARGUMENTS)
    assert (status, out) == (1, "")
    assert err.rstrip() == told.rstrip().replace("error: ", "webnn-vk: ", 1)

    with own_templates(), pytest.raises(RuntimeError, match=f"(?m)^{place}: ERROR"):
        add_template_dir(tmp_path)
        ShaderStore(None, pack=None).get([SPEC])


def test_a_template_elsewhere_is_named_by_its_path(tmp_path) -> None:
    write_own(tmp_path)
    with own_templates():
        add_template_dir(tmp_path)
        places = origins(SPEC)
    assert f"{tmp_path}/own.comp.j2:6" in places and f"{tmp_path}/own_macros.j2:3" in places
    assert any(place.startswith("lib/prelude.glsl.j2:") for place in places)


def test_what_marks_would_change_has_no_origins() -> None:
    """A template that uses variables set by another one."""
    text = "{% set note %}\n// 1\n{% endset %}\n// {{ note | length }}\nvoid main() {}\n"
    with templates(own=text):
        assert "// 5" in render(SPEC) and origins(SPEC) == []


@pytest.mark.parametrize(("fault", "message"), [
    ("{{ nowhere }}", r"own.comp.j2:3: 'nowhere' is undefined \(is an option missing\?\)"),
    ("{{ 1 / 0 }}", "own.comp.j2:3: ZeroDivisionError: division by zero"),
    ("{{ 1 + 'a' }}", "own.comp.j2:3: TypeError: unsupported operand"),
    ("{{ arithmetic_type('float33') }}", "own.comp.j2:3: data type 'float33'; accepted: float32"),
    ("{% nonsense %}", "own.comp.j2:3: Encountered unknown tag 'nonsense'"),
])
def test_a_template_s_own_errors_name_its_line(tmp_path, monkeypatch, fault, message) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.comp.j2").write_text(f'{{% include "lib/prelude.glsl.j2" %}}\n\n{fault}\n')
    with own_templates(), pytest.raises(RenderError, match=f"^{message}"):
        add_template_dir(tmp_path)
        render(SPEC)


def test_marks_are_no_part_of_what_is_rendered() -> None:
    spec = KernelSpec.from_json(table()["scatter_clear.comp.j2"]["example"])
    origins(spec)
    render.cache_clear()
    assert module._OPEN not in render(spec)

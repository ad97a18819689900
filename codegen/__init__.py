"""The generator of compute shaders: a template and a plain-data spec become GLSL, then SPIR-V.

    from webnn_vk.codegen import Buffer, KernelSpec, Param, ShaderStore
    buffers = Buffer("src", "uint32"), Buffer("dst", "uint32", "w")
    names = "first", "rows", "columns", "diagonal", "upper", "count"
    params = [Param(name, "int" if name == "diagonal" else "uint") for name in names]
    spec = KernelSpec("copy.comp.j2", buffers, params, options={"mode": "triangular"})
    spirv, = ShaderStore().get([spec])

It has no knowledge of devices, needs no GPU and imports only `webnn_vk.support`. The command line
(`python -m webnn_vk.codegen`) lists, describes, renders, compiles and disassembles;
`add_template_dir` adds your own templates. Modules: `spec` (the plain data), `render` and `library`
(Jinja to GLSL), `glsl`, `compiler`, `process` and `glslang` (GLSL to SPIR-V), `spirv` (reading and
patching modules), `store` (shader archive, cache, compiler), `pack` (the shader archive),
`arguments` and `describe` (for the command line).
"""

from __future__ import annotations

from webnn_vk.support.lazy_names import lazy_names

from .spec import Buffer, Constant, KernelSpec, Param, SpecError

# Loaded on first use: a kernel family needs the plain data only, Jinja takes a while to import.
_MODULE_OF = {
    "GlslError": "glsl",
    "find_compiler": "compiler",
    "ShaderStore": "store",
    "ShaderUnavailable": "store",
    "build_pack": "store",
    "add_template_dir": "render",
    "templates": "render",
}

__all__ = ["Buffer", "Constant", "KernelSpec", "Param", "SpecError", *_MODULE_OF]

__getattr__ = lazy_names(globals(), _MODULE_OF)

"""Schedules: the choices for the stored profiles, stored as text, and their order of precedence."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.golden import Golden
from tests.support.profiles import H200, NAMES, stored_profile
from tests.support.running import node_of, plan
from webnn_vk.compiler import kernels
from webnn_vk.compiler.kernels import (
    FAMILIES,
    KernelNode,
    KernelTarget,
    Schedule,
    Unsupported,
    choose,
    solver_of,
)
from webnn_vk.compiler.kernels.choose import fitting, modelled, ranked
from webnn_vk.compiler.kernels.cost import compiling
from webnn_vk.compiler.kernels.heuristics import (
    DEVICE_CLASSES,
    Constraint,
    Gpu,
    Software,
    device_class,
    rules_for,
)
from webnn_vk.compiler.kernels.heuristics.device_classes import GpuClass
from webnn_vk.compiler.kernels.heuristics.rules import Rules, only
from webnn_vk.compiler.kernels.schedule import problem_class
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile

IMAGE = {"input_layout": "nhwc", "filter_layout": "ohwi"}
DEEP = {"input_layout": "nhwc", "filter_layout": "ihwo"}
KEEP = {"padding": [1, 1, 1, 1]}

#: (operator, shapes of the operands, arguments): small, usual, large and lopsided problems.
PROBLEMS: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    *(("matmul", [(m, k), (k, n)], {}) for m, k, n in (
        (1, 1, 1), (4, 4, 4), (16, 64, 32), (64, 64, 64), (128, 384, 384), (128, 384, 1536),
        (1024, 1024, 1024), (4096, 1024, 4096), (1, 512, 1024), (1024, 512, 1), (3, 100000, 5),
        (49, 960, 160), (7, 33, 5),
    )),
    ("matmul", [(48, 32, 32), (48, 32, 32)], {}),
    ("matmul", [(8, 128, 64), (64, 256)], {}),
    ("gemm", [(512, 1), (512, 1000)], {"a_transpose": True}),
    ("gemm", [(64, 512), (1000, 512)], {"b_transpose": True}),
    ("conv2d", [(1, 3, 224, 224), (32, 3, 3, 3)], {"strides": [2, 2], **KEEP}),
    ("conv2d", [(1, 64, 56, 56), (64, 64, 3, 3)], KEEP),
    ("conv2d", [(1, 4, 8, 8), (4, 4, 3, 3)], {}),
    ("conv2d", [(1, 224, 224, 3), (32, 3, 3, 3)], {"strides": [2, 2], **IMAGE}),
    ("conv2d", [(1, 56, 56, 64), (8, 3, 3, 64)], IMAGE),
    ("conv2d", [(1, 96, 112, 112), (24, 96, 1, 1)], {}),
    ("conv2d", [(1, 96, 112, 112), (96, 1, 3, 3)], {"groups": 96, **KEEP}),
    ("conv2d", [(1, 960, 7, 7), (960, 1, 3, 3)], {"groups": 960, **KEEP}),
    ("conv2d", [(1, 112, 112, 96), (1, 3, 3, 96)], {"groups": 96, **KEEP, **DEEP}),
    ("conv_transpose2d", [(1, 32, 16, 16), (32, 16, 3, 3)], {"strides": [2, 2]}),
    *(("reduce_sum", [shape], {"axes": axes}) for shape, axes in (
        ((4,), [0]), ((128, 384), [1]), ((384, 128), [0]), ((10**7,), [0]), ((4, 10**6), [1]),
        ((100000, 16), [1]), ((100000, 48), [1]), ((100000, 512), [1]), ((512, 100000), [0]),
        ((2, 1280, 49), [2]), ((8, 64, 64, 64), [0, 2, 3]),
    )),
    ("reduce_log_sum_exp", [(64, 30522)], {"axes": [1]}),
    ("arg_max", [(32, 30522)], {"axis": 1}),
    *(("softmax", [shape], {"axis": axis}) for shape, axis in (
        ((4, 12, 32, 32), 3), ((1, 1000), 1), ((64, 30522), 1), ((8, 21, 512, 512), 1),
        ((20000, 20), 1),
    )),
    *(("layer_normalization", [shape], {"axes": axes}) for shape, axes in (
        ((4, 32, 384), [2]), ((1, 768), [1]), ((10000, 16), [1]), ((8, 64, 32, 32), [1, 2, 3]),
    )),
    ("instance_normalization", [(2, 64, 56, 56)], {}),
    ("batch_normalization", [(2, 64, 56, 56), (64,), (64,)], {}),
    *(("cumulative_sum", [shape], {"axis": axis}) for shape, axis in (
        ((16,), 0), ((10**6,), 0), ((64, 4096), 1), ((4096, 64), 0), ((100000, 32), 1),
    )),
    ("average_pool2d", [(1, 64, 112, 112)], {"window_dimensions": [3, 3], "strides": [2, 2]}),
    ("average_pool2d", [(1, 1280, 7, 7)], {}),
    ("max_pool2d", [(1, 8, 8, 4)], {"window_dimensions": [2, 2], "layout": "nhwc"}),
    ("resample2d", [(1, 64, 56, 56)], {"scales": [2, 2], "mode": "linear"}),
    ("resample2d", [(1, 3, 4, 4)], {"sizes": [8, 8]}),
    ("add", [(1024, 384), (384,)], {}),
    ("add", [(4,), (4,)], {}),
    ("gelu", [(128, 1536)], {}),
    ("transpose", [(4, 32, 12, 32)], {"permutation": [0, 2, 1, 3]}),
    ("slice", [(100, 100)], {"starts": [1, 1], "sizes": [50, 50]}),
    ("pad", [(1, 3, 224, 224)], {
        "beginning_padding": [0, 0, 1, 1], "ending_padding": [0, 0, 1, 1], "mode": "reflection",
    }),
    ("triangular", [(12, 512, 512)], {}),
    *(("attention", [(12, m, 64), (12, n, 64), (12, n, 64)], {"scale": 0.125}) for m, n in (
        (512, 512), (32, 32), (1, 512),
    )),
    ("lstm_recurrence", [(224, 1, 1, 512), (1, 128, 512)], {}),
    ("lstm_recurrence", [(10, 16, 2, 2048), (2, 512, 2048)], {"direction": "both"}),
    ("gru_recurrence", [(10, 16, 1, 192), (1, 64, 192)], {"reset_after": False}),
]
_TYPED = [
    ("integer_matmul", (
        [("uint8", (128, 768)), ("int8", (768, 768)), ("int32", (768,))], {"a_zero_point": 128.0},
    )),
    *(("block_matmul", (
        [(kind, (m, k)), ("uint32", (n, k * bits // 32)), ("float16", (n, k // 32))],
        {"bits": bits},
    )) for kind, m, k, n, bits in (
        *(("float32", *sizes) for sizes in (
            (1, 4096, 4096, 4), (1, 576, 1536, 8), (1, 64, 32, 4), (4, 2048, 8192, 4),
            (16, 2048, 2048, 4), (128, 4096, 11008, 8),
        )),
        ("float16", 16, 2048, 2048, 4), ("float16", 128, 4096, 11008, 8),
        ("float16", 512, 4096, 4096, 4),
    )),
    ("gather", ([("float32", (30522, 384)), ("int32", (4, 32))], {})),
    ("gather_elements", ([("float32", (64, 64)), ("int32", (8, 64))], {})),
    ("gather_nd", ([("float16", (8, 16, 4)), ("int64", (5, 2))], {})),
    ("scatter_elements", (
        [("float32", (64, 64)), ("int32", (8, 64)), ("float32", (8, 64))], {}
    )),
    ("scatter_nd", ([("float32", (8, 16, 4)), ("int32", (5, 2)), ("float32", (5, 4))], {})),
]


@dataclass(frozen=True)
class Case:
    title: str
    node: KernelNode


def cases() -> list[Case]:
    """The problems as nodes, named by their arguments."""
    typed = [(name, [("float32", s) for s in shapes], more) for name, shapes, more in PROBLEMS]
    typed += [(name, operands, more) for name, (operands, more) in _TYPED]
    result = []
    for name, operands, arguments in typed:
        given = [MLOperandDescriptor(*operand) for operand in operands]
        node, _ = node_of(name, *given, **arguments)
        shown = [*map(str, given), *(f"{key}={value}" for key, value in arguments.items())]
        result.append(Case(f"{name}({', '.join(shown)})", KernelNode.of(node)))
    return result


CASES = cases()


def chosen(node: KernelNode, profile: DeviceProfile) -> Schedule:
    return kernels.plan(node, KernelTarget(profile)).schedule


@pytest.mark.parametrize("name", NAMES)
def test_choices(name: str, golden: Golden) -> None:
    profile = stored_profile(name)
    lines = []
    for case in CASES:
        try:
            lines.append(f"{case.title}\n    {chosen(case.node, profile)}\n")
        except Unsupported as error:
            lines.append(f"{case.title}\n    unsupported: {error}\n")
    golden(f"../goldens/choices/{name}.txt", "".join(lines))


def test_every_profile_has_its_golden_file() -> None:
    folder = Path(__file__).parents[1] / "goldens" / "choices"
    assert {path.stem for path in folder.iterdir()} == {*NAMES}


def test_every_family_is_asked() -> None:
    assert {case.node.lowering.family for case in CASES} == set(FAMILIES)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_chosen_is_a_candidate(name: str) -> None:
    profile = stored_profile(name)
    several = set()
    for case in CASES:
        solver, problem = solver_of(case.node)
        hash(problem)
        candidates = solver.candidates(problem, profile)
        assert len(set(candidates)) == len(candidates), case.title
        assert chosen(case.node, profile) in candidates, case.title
        several |= {case.node.lowering.family} if len(candidates) > 1 else set()
    assert several >= {"matmul", "conv", "reduce", "softmax", "norm", "scan"}


@pytest.mark.parametrize("name", NAMES)
def test_every_candidate_can_be_lowered(name: str) -> None:
    """A tuner may choose any of them: each has to keep within the device's limits."""
    profile = stored_profile(name)
    for case in CASES:
        solver, problem = solver_of(case.node)
        for schedule in solver.candidates(problem, profile):
            for dispatch in solver.lower(case.node, problem, schedule, profile):
                size = [dispatch.constants.get(axis, 1) for axis in ("LX", "LY", "LZ")]
                what = f"{case.title}: {schedule}"
                assert size[0] * size[1] * size[2] <= profile.max_workgroup_invocations, what
                limits = zip(size, profile.max_workgroup_size, strict=True)
                assert all(n <= most for n, most in limits), what
                limits = zip(dispatch.groups, profile.max_workgroup_count, strict=True)
                assert all(n <= most for n, most in limits), what


# -- the tuned table
@pytest.mark.sample(0.5)
@pytest.mark.parametrize("name", NAMES)
def test_what_was_tuned_outranks_the_heuristics(name: str) -> None:
    profile = stored_profile(name)
    asked = 0
    for case in CASES:
        solver, problem = solver_of(case.node)
        for schedule in solver.candidates(problem, profile):
            name = solver.name
            tuned = {(name, problem_class(problem)): schedule}
            candidates = solver.candidates(problem, profile)
            assert next(ranked(name, candidates, problem, profile, tuned)) == schedule
            assert kernels.plan(case.node, KernelTarget(profile, tuned)).schedule == schedule
            asked += schedule != chosen(case.node, profile)
    assert asked > 50


def _product() -> tuple[KernelNode, Any]:
    given = (MLOperandDescriptor("float32", (64, 64)),) * 2
    node = KernelNode.of(node_of("matmul", *given)[0])
    return node, solver_of(node)[1]


def test_a_tuned_schedule_reaches_the_dispatch() -> None:
    node, problem = _product()
    profile = stored_profile("nvidia_ampere")
    (usual,) = plan(node, profile)
    wanted = Schedule("matmul", (("LX", 8), ("LY", 8), ("TM", 4), ("TN", 4)))
    (tuned,) = plan(node, profile, {("matmul", problem_class(problem)): wanted})
    assert (usual.kernel, tuned.kernel) == ("matmul_tiled", "matmul")
    assert tuned.constants == dict(wanted.numbers)


def test_workgroups_without_shared_memory_fill_a_subgroup() -> None:
    """Mali has subgroups of 16: half of one would be idle in workgroups of 8."""
    mali = stored_profile("arm_mali_g610")
    for rows in (4, 64, 512):
        given = MLOperandDescriptor("float32", (rows, 64)), MLOperandDescriptor("float32", (64, 64))
        made = chosen(KernelNode.of(node_of("matmul", *given)[0]), mali)
        assert made.kernel == "matmul" and made["LX"] * made["LY"] >= mali.min_subgroup_size


def test_what_is_no_candidate_or_for_another_problem_is_ignored() -> None:
    node, problem = _product()
    profile = stored_profile("nvidia_ampere")
    usual = chosen(node, profile)
    candidates = solver_of(node)[0].candidates(problem, profile)
    known = candidates[0]
    assert known != usual
    for tuned in (
        {("matmul", problem_class(problem)): Schedule("matmul", (("LX", 8), ("LY", 77)))},
        {("matmul", problem_class(problem)): Schedule("gone")},
        {("matmul", "Product()"): known},
        {("conv", problem_class(problem)): known},
    ):
        assert next(ranked("matmul", candidates, problem, profile, tuned)) == usual


def test_without_candidates_the_problem_is_named() -> None:
    with pytest.raises(Unsupported, match="no matmul kernel of this device computes p"):
        next(ranked("matmul", [], "p", stored_profile()))


# -- constraints
def _rules(*constraints: Constraint) -> type[Rules]:
    class OneFamily(Rules):
        loads = only("b", lambda c: c.kernel == "b")

        def matmul(self, candidates: Sequence[Schedule], problem: Any) -> Iterator[Constraint]:
            yield from constraints

    return OneFamily


def test_constraints_leave_candidates_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, after the one of every family. One that no candidate meets is ignored."""
    made = [Schedule(kernel, (("TM", tm),)) for kernel in ("a", "b") for tm in (1, 2, 4)]

    def left(candidates: Sequence[Schedule], *constraints: Constraint) -> list[str]:
        kind = _rules(*constraints)
        monkeypatch.setattr(choose, "rules_for", lambda profile: kind(None, profile))
        return [str(c) for c in choose.narrowed("matmul", candidates, None, stored_profile())]

    assert left(made) == left(made, only("none", lambda c: c["TM"] > 4)) == [
        "b TM=1", "b TM=2", "b TM=4"
    ]
    assert left(made[:3]) == ["a TM=1", "a TM=2", "a TM=4"]
    large, small = only("large", lambda c: c["TM"] > 1), only("small", lambda c: c["TM"] < 4)
    assert left(made, large, small) == left(made, small, large) == ["b TM=2"]
    largest = Constraint("largest", lambda c: -c["TM"])
    assert left(made, largest, small) == ["b TM=4"] and left(made, small, largest) == ["b TM=2"]


@pytest.mark.parametrize("name", NAMES)
def test_the_cheapest_within_the_constraints_is_chosen(name: str) -> None:
    """By the cost model; the first of equal ones, and of those that it doesn't know."""
    profile = stored_profile(name)
    compared = 0
    for case in CASES:
        solver, problem = solver_of(case.node)
        fit = fitting(solver.candidates(problem, profile), problem, profile)
        within = choose.narrowed(solver.name, fit, problem, profile)
        costs = [modelled(problem, schedule, profile) for schedule in within]
        figures = device_class(profile).cost
        costs = [
            cost if cost is None else cost + compiling(problem, schedule, figures)
            for cost, schedule in zip(costs, within, strict=True)
        ]
        known = [cost for cost in costs if cost is not None]
        best = within[costs.index(min(known)) if known else 0]
        assert next(ranked(solver.name, fit, problem, profile)) == best, case.title
        compared += len({*known}) > 1
    # On Mali, constraints leave tiles of one size.
    assert compared >= {"adreno_minimum": 3, "arm_mali_g610": 0}.get(name, 15)


def test_the_price_of_compiling_a_tile_is_compared_with_what_it_saves() -> None:
    """On lavapipe, tiles of 16 rows are faster and take longer to compile."""
    profile = stored_profile("llvmpipe")
    rows = []
    for size in (128, 512, 1024):
        given = (MLOperandDescriptor("float32", (size, size)),) * 2
        rows.append(chosen(KernelNode.of(node_of("matmul", *given)[0]), profile)["TM"])
    assert rows == [8, 16, 16]


@pytest.mark.parametrize("name", NAMES)
def test_each_constraint_has_a_reason(name: str) -> None:
    profile = stored_profile(name)
    rules = rules_for(profile)
    reasons = {rules.loads.reason}
    for case in CASES:
        solver, problem = solver_of(case.node)
        candidates = solver.candidates(problem, profile)
        loaded = [c for c in candidates if not rules.loads.rank(c)] or candidates
        if len(loaded) > 1:
            rule = getattr(rules, solver.name)
            reasons |= {constraint.reason for constraint in rule(loaded, problem)}
    assert len(reasons) > 10 and all(len(reason) > 7 for reason in reasons)


# -- which rules
def test_each_class_of_devices_has_its_rules() -> None:
    classes = {name: device_class(stored_profile(name)).name for name in NAMES}
    assert classes == {
        "adreno_minimum": "adreno", "amd_navi31": "amd", "apple_m1": "apple",
        "arm_mali_g610": "arm", "intel_dg2": "intel", "llvmpipe": "llvmpipe",
        "nvidia_ampere": "nvk", "qualcomm_adreno750": "adreno",
    }
    own_driver = stored_profile("nvidia_ampere").replace(driver_name="NVIDIA")
    assert device_class(own_driver).name == "nvidia"
    assert isinstance(rules_for(stored_profile("nvidia_ampere")), Gpu)
    assert isinstance(rules_for(stored_profile("llvmpipe")), Software)
    unknown = stored_profile("nvidia_ampere").replace(vendor_id=0x1234, driver_name="another")
    assert device_class(unknown).name == "gpu"
    assert device_class(unknown.replace(device_type="cpu")).name == "llvmpipe"
    slow = stored_profile("llvmpipe").replace(slow_gathers=True)
    assert device_class(slow).name == "llvmpipe-slow-gathers"
    assert all(len(device.source) > 40 for device in DEVICE_CLASSES.values())


def test_a_class_of_gpus_is_for_the_size_of_the_device() -> None:
    """What keeps all multiprocessors busy grows with their number; what one of them does, doesn't.
    Where the driver doesn't say how many there are, the class is as written."""
    profile, nvidia = stored_profile(H200), DEVICE_CLASSES["nvidia"]
    assert profile.multiprocessors == 132
    large = device_class(profile)
    assert isinstance(large, GpuClass)
    numbers = {f.name: getattr(large, f.name) for f in fields(large)}
    assert {n: v for n, v in numbers.items() if v != getattr(nvidia, n)} == {
        "cost": replace(nvidia.cost, units=132), "product_tiles": 132, "few_tiles": 132,
        "many_rows": 16896, "min_invocations": 270336, "row_groups": 1056,
    }
    assert device_class(profile.replace(multiprocessors=0)) is nvidia
    navi = device_class(stored_profile("amd_navi31").replace(multiprocessors=96))
    assert isinstance(navi, GpuClass)
    assert (navi.name, navi.product_tiles, navi.fast_matrices) == ("amd", 96, True)
    software = stored_profile("llvmpipe").replace(multiprocessors=4)
    assert device_class(software) is DEVICE_CLASSES["llvmpipe"]


def test_the_size_of_the_device_decides_what_is_cut_into_parts() -> None:
    """64 of the smallest tiles: up to one for each multiprocessor, or 32 where their number isn't
    known."""
    given = MLOperandDescriptor("float32", (256, 4096)), MLOperandDescriptor("float32", (4096, 256))
    node, profile = KernelNode.of(node_of("matmul", *given)[0]), stored_profile(H200)
    assert chosen(node, profile).parts > 1
    assert chosen(node, profile.replace(multiprocessors=64)).parts > 1
    for fewer in (63, 32, 0):
        assert chosen(node, profile.replace(multiprocessors=fewer)).parts == 1


def test_what_spills_nothing_keeps_the_occupancy_of_a_vendor() -> None:
    """The limit of spills holds the occupancy too, with registers left for addresses."""
    vendors = {n: d for n, d in DEVICE_CLASSES.items() if isinstance(d, GpuClass) and n != "gpu"}
    assert {name: device.occupancy for name, device in vendors.items()} == {
        "nvidia": 10, "nvk": 12, "amd": 2, "intel": 8, "adreno": 4, "arm": 1, "apple": 384,
    }
    for device in vendors.values():
        assert device.max_registers == device.cost.registers <= device.occupied_registers


def test_a_schedule_below_the_occupancy_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    given = (MLOperandDescriptor("float32", (1024, 1024)),) * 2
    solver, problem = solver_of(KernelNode.of(node_of("matmul", *given)[0]))
    profile = stored_profile("nvidia_ampere").replace(cooperative_matrices=())
    candidates = solver.candidates(problem, profile)
    assert next(ranked("matmul", candidates, problem, profile))["TM"] == 8
    crowded = replace(DEVICE_CLASSES["nvk"], occupied_registers=60)
    monkeypatch.setitem(DEVICE_CLASSES, "nvk", crowded)
    assert next(ranked("matmul", candidates, problem, profile))["TM"] == 4


def test_schedules_are_plain_data() -> None:
    schedule = Schedule("matmul", (("LX", 8), ("TM", 4)))
    assert str(schedule) == "matmul LX=8 TM=4"
    assert schedule["TM"] == 4 and schedule.constants("LX") == {"LX": 8}
    assert schedule == Schedule("matmul", (("LX", 8), ("TM", 4)))
    with pytest.raises(KeyError, match="matmul LX=8 TM=4 has no BK"):
        schedule["BK"]


# -- what kernels never ask
def _mentions(path: Path) -> list[str]:
    """Places where a module asks for an operator's name or the kind of device."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            named = node.attr == "name" and owner.split(".")[-1] in ("operator", "record")
            if named or node.attr == "is_software":
                found.append((node.lineno, ast.unparse(node)))
    return [f"{path.name}:{line} {text}" for line, text in sorted(found)]


def test_no_kernel_asks_for_an_operators_name_or_a_software_device() -> None:
    folder = Path(kernels.__file__).parent
    modules = sorted(folder.rglob("*.py"))
    assert len(modules) > 30
    assert [place for path in modules for place in _mentions(path)] == []


def test_the_scan_finds_them(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("a = node.operator.name == 'add'\nb = profile.is_software\nc = family.name\n")
    assert _mentions(path) == ["x.py:1 node.operator.name", "x.py:2 profile.is_software"]

"""From what engines assign to a Vulkan device: by UUID or PCI address, or an error."""

import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

import webnn_vk
from tests.support.profiles import stored_profile
from webnn_vk import NotSupportedError, distributed
from webnn_vk.distributed import assignment
from webnn_vk.distributed.assignment import Assigned, from_masks, resolve
from webnn_vk.distributed.gpus import Gpu, amd_gpus, nvidia_gpus

NVIDIA, AMD, LLVMPIPE = (
    stored_profile(name) for name in ("nvidia_ampere", "amd_navi31", "llvmpipe"))
A, B = "84c7545db252b9c650305931de02a4bb", "84c8545db252b9c650305931de02a4bb"
DASHED = "GPU-84c8545d-b252-b9c6-5030-5931de02a4bb"


@dataclass
class Found:
    profile: object
    unusable: str | None = None


def twins():
    """Two cards of one name, in another order than NVML's, and software Vulkan."""
    second = NVIDIA.replace(uuid=B, pci="0000:ca:00.0")
    return [Found(LLVMPIPE), Found(second), Found(NVIDIA.replace(uuid=A, pci="0000:65:00.0"))]


# NVML lists them in an order of its own.
NVML = [Gpu(DASHED, "0000:ca:00.0"), Gpu(f"GPU-{A}", "0000:65:00.0")]
# RADV's UUIDs are none of ROCm's: the addresses say which is which.
RADV = [
    Found(AMD.replace(uuid=f"{n:032x}", pci=f"0000:{n:02x}:00.0")) for n in (0x03, 0x83)]
KFD = [Gpu("GPU-00000000000000aa", "0000:83:00.0"), Gpu("GPU-00000000000000bb", "0000:03:00.0")]
ORDERED = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def device(found, variables=ORDERED, devices=None, nvidia=NVML, amd=()):
    return resolve(found, variables, twins() if devices is None else devices,
                   lambda: list(nvidia), lambda: list(amd))[1]


@pytest.mark.parametrize(("names", "order", "expected"), [
    (("0",), "cuda", A), (("1",), "cuda", B), (("1", "0"), "cuda", B),
    (("0",), "nvml", B), (("1",), "nvml", A),
    ((DASHED,), "cuda", B), ((f"GPU-{A}",), "cuda", A), (("GPU-84c7",), "cuda", A),
    (("gpu-84C8545D",), "cuda", B),
])
def test_gpus_of_nvidia(names, order, expected):
    assert device(Assigned("Ray", names, order)) == f"uuid:{expected}"


@pytest.mark.parametrize(("names", "variables", "expected"), [
    (("0",), {}, "83"), (("1",), {}, "03"),
    (("0",), {"ROCR_VISIBLE_DEVICES": "1"}, "03"),
    (("1",), {"ROCR_VISIBLE_DEVICES": "1, GPU-00000000000000aa"}, "83"),
    (("GPU-00000000000000BB",), {}, "03"), (("GPU-00000000000000a",), {}, "83"),
])
def test_gpus_of_amd(names, variables, expected):
    found = device(Assigned("HIP_VISIBLE_DEVICES", names, "hip"), variables, RADV, (), KFD)
    assert found == f"uuid:{int(expected, 16):032x}"
    # A driver that gives all its devices one UUID; GPUs to which ROCm gives none.
    alike = [Found(one.profile.replace(uuid="0" * 32)) for one in RADV]
    by_place = "GPU-" not in f"{names}{variables}"
    listed = [Gpu(f"GPU-{0:016x}", gpu.pci) for gpu in KFD] if by_place else KFD
    found = device(Assigned("HIP_VISIBLE_DEVICES", names, "hip"), variables, alike, (), listed)
    assert found == f"pci:0000:{expected}:00.0"


def test_rocr_itself_and_the_mask_of_cuda_on_amd():
    variables = {"ROCR_VISIBLE_DEVICES": "1"}
    found = from_masks(variables)
    assert (found.names, found.order) == (("1",), "rocr")
    assert device(found, variables, RADV, (), KFD) == f"uuid:{3:032x}"
    assert device(from_masks({"CUDA_VISIBLE_DEVICES": "0"}), {}, RADV, (), KFD).endswith("83")


@pytest.mark.parametrize(("given", "options", "message"), [
    (("0",), {"variables": {}}, "GPU 0 of 2 in CUDA's own order.*CUDA_DEVICE_ORDER=PCI_BUS_ID"),
    (("0",), {"variables": {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}}, "CUDA's own order"),
    (("2",), {}, f"assigns GPU 2, which names none of the GPUs found here: GPU-{A}, {DASHED}"),
    (("0",), {"nvidia": ()}, "GPU 0, which names none of .*: none; a container needs the driver's"),
    (("0",), {"amd": KFD}, "2 of NVIDIA's and 2 of AMD's.*assign UUIDs"),
    (("first",), {}, "'first': an index, GPU-… or MIG-… is expected"),
    (("GPU-84c",), {}, "GPU-84c, which names 2 of the GPUs found here"),
    (("GPU-123",), {}, "GPU-123, which names none of the GPUs found here"),
    ((f"GPU-{'0' * 32}",), {}, "has no Vulkan device here; a container needs.*Nothing else is"),
    (("MIG-84c7545d-b252-b9c6-5030-5931de02a4b0",), {}, "few kinds of MIG instances"),
    (("0",), {"devices": [Found(LLVMPIPE)]}, "no Vulkan device here.*Found: llvmpipe"),
    (("0",), {"devices": []}, "Found: none"),
    (("0",), {"nvidia": [Gpu(f"GPU-{A}", "0000:65:00.0", mig=True)]}, "MIG instances"),
    (("0",), {"devices": [Found(NVIDIA.replace(uuid=A), "driver too old")]},
     "can't be used: driver too old"),
    # Software Vulkan with the card's UUID stays software.
    (("0",), {"devices": [Found(LLVMPIPE.replace(uuid=A))]}, "no Vulkan device here"),
])
def test_what_is_refused(given, options, message):
    with pytest.raises(NotSupportedError, match=message):
        device(Assigned("CUDA_VISIBLE_DEVICES", given), **options)


def test_a_single_gpu_has_one_order():
    assert device(Assigned("Ray", ("0",)), {}, nvidia=NVML[1:]) == f"uuid:{A}"


def test_an_instance_of_mig_that_has_vulkan():
    graphics = Found(NVIDIA.replace(uuid=B))
    assert device(Assigned("Ray", (f"MIG-{B}",)), devices=[graphics]) == f"uuid:{B}"


@pytest.mark.parametrize(("variables", "names"), [
    ({"CUDA_VISIBLE_DEVICES": ""}, ()), ({"CUDA_VISIBLE_DEVICES": "-1"}, ()),
    ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, ()), ({"CUDA_VISIBLE_DEVICES": "2, 1"}, ("2", "1")),
    ({"CUDA_VISIBLE_DEVICES": "1,-1,0"}, ("1",)),
    ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "1"}, ("1",)),
    ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": ""}, ("1",)),
])
def test_masks(variables, names):
    assert from_masks(variables).names == names


def test_masks_that_contradict_each_other():
    assert from_masks({"PATH": ""}) is None
    with pytest.raises(NotSupportedError, match="assign different GPUs"):
        from_masks({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"})


def test_the_assigned_device_is_printed(monkeypatch, capsys):
    for name in assignment._MASKS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("WEBNN_VK_DEVICE", raising=False)
    assert distributed.assigned_device() is None
    monkeypatch.setenv("WEBNN_VK_DRIVER", "null")
    monkeypatch.setenv("WEBNN_VK_NULL_DEVICES", "2")
    first, second, _ = webnn_vk.devices()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-{second.uuid},GPU-{first.uuid}")
    assert distributed.assigned_device() == f"uuid:{second.uuid.replace('-', '')}"
    told = capsys.readouterr().err
    assert f"assigns GPU GPU-{second.uuid}, the first of 2: null device, uuid:" in told
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(NotSupportedError, match="CUDA's own order"):
        distributed.assigned_device()
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert distributed.assigned_device().endswith("01")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert distributed.assigned_device() == "cpu"
    monkeypatch.setenv("WEBNN_VK_DEVICE", "vulkan")
    assert distributed.assigned_device() == "vulkan"
    assert "WEBNN_VK_DEVICE asks for vulkan" in capsys.readouterr().err


def nvml(**changes):
    """A stand-in for pynvml: two GPUs, of which the second can be cut into instances."""
    class NVMLError(Exception):
        pass

    class NVMLError_LibraryNotFound(NVMLError):
        pass

    def mig(handle):
        if handle == 0:
            raise NVMLError("Not Supported")
        return [1, 1]

    calls = {
        "nvmlInit": lambda: None, "nvmlShutdown": lambda: None, "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda i: i, "nvmlDeviceGetMigMode": mig,
        "nvmlDeviceGetUUID": lambda handle: [f"GPU-{A}", DASHED][handle],
        "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(
            busId=["00000000:65:00.0", "00000001:CA:00.0"][handle]),
    }
    module = SimpleNamespace(NVMLError=NVMLError,
                             NVMLError_LibraryNotFound=NVMLError_LibraryNotFound)
    vars(module).update(calls | {n: change(module) for n, change in changes.items()})
    return module


def raising(name):
    def change(module):
        def call(*_):
            raise getattr(module, name)("no driver")
        return call
    return change


def test_nvml(monkeypatch):
    monkeypatch.delenv("WEBNN_VK_DRIVER", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    assert nvidia_gpus() == [
        Gpu(f"GPU-{A}", "0000:65:00.0"), Gpu(DASHED, "0001:ca:00.0", mig=True)]
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlInit=raising("NVMLError_LibraryNotFound")))
    assert nvidia_gpus() == []
    for name in ("nvmlInit", "nvmlDeviceGetCount"):
        monkeypatch.setitem(sys.modules, "pynvml", nvml(**{name: raising("NVMLError")}))
        with pytest.raises(NotSupportedError, match="NVML can't list NVIDIA's GPUs: no driver"):
            nvidia_gpus()


def test_the_kernels_list_of_amds_gpus(tmp_path):
    for node, lines in {
        "0": "cpu_cores_count 64\nsimd_count 0",
        "10": "simd_count 304\nunique_id 187\nlocation_id 768\ndomain 0",
        "2": "simd_count 304\nunique_id 170\nlocation_id 33537\ndomain 1",
    }.items():
        (tmp_path / node).mkdir()
        (tmp_path / node / "properties").write_text(lines + "\n")
    (tmp_path / "3").mkdir()  # of another container
    assert amd_gpus(tmp_path) == [
        Gpu("GPU-00000000000000aa", "0001:83:00.1"), Gpu("GPU-00000000000000bb", "0000:03:00.0")]
    assert amd_gpus(tmp_path / "none") == []


def test_a_task_of_spark(monkeypatch):
    task = SimpleNamespace(
        resources=lambda: {"gpu": SimpleNamespace(addresses=["1"])}, cpus=lambda: 3)
    spark = SimpleNamespace(TaskContext=SimpleNamespace(get=lambda: task))
    monkeypatch.setitem(sys.modules, "pyspark", spark)
    assert assignment._from_engine({}) == Assigned("Spark", ("1",), "nvml", 3)
    assert assignment.assigned_cores() == 3
    task.resources = dict
    assert assignment._from_engine({}).names == ()
    task = None
    assert assignment._from_engine({}) is None and assignment.assigned_cores() is None


@pytest.mark.parametrize(("variables", "order"), [
    ({}, "cuda"), ({"HIP_VISIBLE_DEVICES": "1"}, "hip"),
    ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "1"}, "cuda"),
])
def test_a_worker_of_ray(monkeypatch, variables, order):
    context = SimpleNamespace(
        worker=SimpleNamespace(mode=1), get_accelerator_ids=lambda: {"GPU": [1], "TPU": []},
        get_assigned_resources=lambda: {"CPU": 0.5})
    ray = SimpleNamespace(
        WORKER_MODE=1, is_initialized=lambda: True, get_runtime_context=lambda: context)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    assert assignment._from_engine(variables) == Assigned("Ray", ("1",), order, 0.5)
    assert assignment.assigned_cores() == 1
    context.worker.mode = 0  # the driver
    assert assignment._from_engine(variables) is None

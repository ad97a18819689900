"""Lists the Vulkan drivers' devices, in a child process that may crash or hang.

Run by path, without site-packages: Python and ctypes start in about 30 ms. Prints the name of each
call before the call, then ``well``, or ``failed`` with the call's result.
"""

import ctypes
import sys

_SIZE = 8192  # bytes, more than any of the structs has
_PROPERTIES_2, _FEATURES_2 = 1000059001, 1000059000


class _Application(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("next", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("version", ctypes.c_uint32), ("engine", ctypes.c_char_p),
                ("engine_version", ctypes.c_uint32), ("api_version", ctypes.c_uint32)]


class _Instance(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("next", ctypes.c_void_p), ("flags", ctypes.c_uint32),
                ("application", ctypes.POINTER(_Application)), ("layers", ctypes.c_uint32),
                ("layer_names", ctypes.c_void_p), ("extensions", ctypes.c_uint32),
                ("extension_names", ctypes.c_void_p)]


class _Queue(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("next", ctypes.c_void_p), ("flags", ctypes.c_uint32),
                ("family", ctypes.c_uint32), ("count", ctypes.c_uint32),
                ("priorities", ctypes.POINTER(ctypes.c_float))]


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("next", ctypes.c_void_p), ("flags", ctypes.c_uint32),
                ("queues", ctypes.c_uint32), ("queue", ctypes.POINTER(_Queue)),
                ("layers", ctypes.c_uint32), ("layer_names", ctypes.c_void_p),
                ("extensions", ctypes.c_uint32), ("extension_names", ctypes.c_void_p),
                ("features", ctypes.c_void_p)]


def _no_core_file() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        pass  # then a crash leaves a core file


class _Failed(Exception):
    pass


def _ask(library: str) -> None:
    vulkan = ctypes.CDLL(library)

    def call(name: str, *arguments: object, checked: bool = True) -> int:
        print(name, flush=True)
        function = getattr(vulkan, name)
        function.restype = ctypes.c_int
        result = function(*arguments)
        if checked and result < 0:
            raise _Failed(f"failed {result}")
        return result

    count = ctypes.c_uint32()
    # Loads the drivers.
    call("vkEnumerateInstanceExtensionProperties", None, ctypes.byref(count), None)
    application = _Application(0, None, b"webnn_vk", 0, b"webnn_vk", 0, 1 << 22 | 2 << 12)
    instance = ctypes.c_void_p()
    info = _Instance(1, None, 0, ctypes.pointer(application), 0, None, 0, None)
    call("vkCreateInstance", ctypes.byref(info), None, ctypes.byref(instance))
    call("vkEnumeratePhysicalDevices", instance, ctypes.byref(count), None)
    devices = (ctypes.c_void_p * max(count.value, 1))()
    call("vkEnumeratePhysicalDevices", instance, ctypes.byref(count), devices)
    for handle in devices[: count.value]:
        device = ctypes.c_void_p(handle)
        # Their results don't matter here, only that they return.
        number = ctypes.c_uint32()
        call("vkEnumerateDeviceExtensionProperties", device, None, ctypes.byref(number), None,
             checked=False)
        call("vkGetPhysicalDeviceQueueFamilyProperties", device, ctypes.byref(number), None,
             checked=False)
        for name, kind in (("vkGetPhysicalDeviceProperties2", _PROPERTIES_2),
                           ("vkGetPhysicalDeviceFeatures2", _FEATURES_2),
                           ("vkGetPhysicalDeviceMemoryProperties", 0)):
            space = ctypes.create_string_buffer(_SIZE)
            ctypes.c_int.from_buffer(space).value = kind
            call(name, device, space, checked=False)
        queue = _Queue(2, None, 0, 0, 1, ctypes.pointer(ctypes.c_float(1)))
        made = ctypes.c_void_p()
        wanted = _Device(3, None, 0, 1, ctypes.pointer(queue), 0, None, 0, None, None)
        if not call("vkCreateDevice", device, ctypes.byref(wanted), None, ctypes.byref(made),
                    checked=False):
            call("vkDestroyDevice", made, None, checked=False)


if __name__ == "__main__":
    _no_core_file()
    try:
        _ask(sys.argv[1])
        print("well", flush=True)
    except _Failed as failed:
        print(failed, flush=True)

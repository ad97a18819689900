"""Sharing tensors with NumPy, DLPack, memory-mapped files and wgpu-py.

The implementation of ``tensor.to_numpy()``, ``tensor.__dlpack__()``,
``webnn_vk.from_dlpack``, ``context.import_constant_tensor`` and, for ``wgpu.GPUDevice``s,
``ml.create_context`` and ``context.export_to_gpu``. See docs/interop.md.
"""

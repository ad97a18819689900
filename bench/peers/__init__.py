"""This library and others on Vulkan (ncnn, ONNX Runtime's WebGPU, IREE, tinygrad), in one run.

``results`` makes tables and ratios of the measurements. ``harness`` measures one peer and one
workload at a time, in separate processes.
"""

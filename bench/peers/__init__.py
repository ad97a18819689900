"""Ours beside other libraries on Vulkan (ncnn, ONNX Runtime's WebGPU, IREE, tinygrad), in one run.

``results`` makes tables and ratios of what was measured, ``harness`` measures: a peer and a
workload at a time, each in processes of its own.
"""

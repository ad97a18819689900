"""The objects of the WebNN API: navigator, context, builder, tensors and graphs. Converts and
checks arguments, then hands the work to `compiler/` and `runtime/`; may import every folder but
`onnx/`, `webnn_file/` and `tools/`."""

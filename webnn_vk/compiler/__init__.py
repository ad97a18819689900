"""From a graph to a program, without a device: data types, operators, the intermediate
representation, passes, kernels, programs, each importing only those before it in this list, and
`support/`, `driver/`'s description of devices and `webnn_vk.codegen`."""

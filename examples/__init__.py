"""What can be written with `webnn_vk`: models and programs on top of its public names alone.

In an installation this folder is the package `webnn_vk.examples`; `webnn-vk demo` runs from it.
"""

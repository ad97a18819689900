"""``navigator.ml`` for JavaScript: the process behind the npm package ``webnn-vk``.

``python -m webnn_vk.bridge`` serves one client over two FIFOs and ends with it. The package starts
it; nobody else needs to. docs/javascript.md describes the package, `frames` what goes over the
FIFOs, `session` what a client may ask for. Imports `api` and the folders below it.
"""

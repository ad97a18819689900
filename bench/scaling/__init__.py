"""Time against size: sequence length, image size, batch.

``sweeps`` has the models and sizes, ``points`` finds cliffs in the measurements, ``measure``
measures one size in a separate process.
"""

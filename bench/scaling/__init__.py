"""Time against size: sequence length, image size, batch.

``sweeps`` says which models in which sizes, ``points`` finds cliffs in what was measured,
``measure`` measures one size in a process of its own.
"""

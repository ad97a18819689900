"""Models for measurements, built by `MLGraphBuilder` alone."""

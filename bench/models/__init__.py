"""Models to measure with, built from nothing but `MLGraphBuilder`."""

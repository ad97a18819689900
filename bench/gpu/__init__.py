"""One run on a GPU, for `bench/gpu_session.py`: what its stages share, and a module for each stage.

The JSON files beside the modules are the results of runs, named after card and date.
"""

"""Tuning: the best few schedules of a graph's kernels are measured on the device, compared with the
plain kernel, and stored for later builds in the user's cache folder.

``tuner`` decides what is measured and accepted, ``workbench`` runs a kernel by a schedule,
``store`` keeps the results, ``probe`` distinguishes the two kinds of CPU that llvmpipe runs on.
"""

from .probe import known_profile, probed_profile
from .store import FOLDER, Entry, TunedStore, damaged_schedules, remembered_files, schedule_files
from .tuner import Measured, Outcome, Plan, Tuner, prepared, tune

__all__ = [
    "FOLDER",
    "Entry",
    "Measured",
    "Outcome",
    "Plan",
    "TunedStore",
    "Tuner",
    "damaged_schedules",
    "known_profile",
    "prepared",
    "probed_profile",
    "remembered_files",
    "schedule_files",
    "tune",
]

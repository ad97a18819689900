"""Kompute (`kp` 0.9.0) behind the driver interface: what it lacks is made up for here and stands in
its `DeviceProfile` (`profile`). See docs/drivers.md; scripts/install-kompute installs it.
"""

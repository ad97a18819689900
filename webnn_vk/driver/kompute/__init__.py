"""Kompute (`kp` 0.9.0) behind the driver interface: its gaps are filled here or stated in its
`DeviceProfile` (`profile`). See docs/drivers.md; scripts/install-kompute installs it.
"""

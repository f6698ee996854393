"""Measurements, as ratios to something bare in the same run: `python -m bench [name ...] [--quick]`."""

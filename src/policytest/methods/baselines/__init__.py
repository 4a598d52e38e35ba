"""Baselines behind the interface of `PTST`."""

"""Environments and datasets as tasks and simulators."""

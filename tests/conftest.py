"""Shared by all tests: Hypothesis without deadlines (the first call compiles) and without randomness."""

from hypothesis import settings

settings.register_profile("policytest", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("policytest")

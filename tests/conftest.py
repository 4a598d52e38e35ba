"""Shared by all tests: Hypothesis without deadlines (the first call compiles) and without randomness."""

import signal

from hypothesis import settings

settings.register_profile("policytest", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("policytest")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

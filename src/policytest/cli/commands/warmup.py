"""``policytest warmup``: compile now, not at the first question."""

from __future__ import annotations

import time

from policytest.cli.exit_codes import DONE, say


def warmup() -> int:
    """Compile everything the test needs, so that later runs start at once."""
    from policytest.cli.warmup import small_runs

    begun = time.monotonic()
    for run in small_runs():
        run()
    say(f"Ready after {time.monotonic() - begun:.1f} seconds.")
    return DONE

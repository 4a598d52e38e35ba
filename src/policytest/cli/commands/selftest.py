"""``policytest selftest``: are the promises kept on this machine?"""

from __future__ import annotations

from policytest.cli import options as o
from policytest.cli.exit_codes import DONE, Code, complain
from policytest.cli.files import check_files
from policytest.cli.groups import option
from policytest.cli.output import quiet_stdout, show


def selftest(
    *,
    runs: int = option("Runs from which each error frequency is estimated.", default=300, min=100, max=1_000_000),
    seed: int = option(o.SEED, default=0),
    output: o.Shown,
) -> int:
    """Check on this machine that delta is kept, certificates verify, and seeds fix results.

    Exit codes: 0 every promise was kept, 2 usage error, 3 interrupted, 4 a promise was broken.
    """
    check_files((), {"--html": output.html})

    with quiet_stdout(output.json):
        from policytest.cli.promises import Promise
        from policytest.cli.promises import selftest as check_everything

        def shown(promise: Promise) -> None:
            if not output.quiet:
                complain(f"{'kept' if promise.kept else 'BROKEN'}: {promise.name}")

        found = check_everything(runs, seed, shown)
    show(found, output, "Are the promises kept on this machine?", f"{runs} runs for each frequency, seed {seed}")
    return DONE if found.kept else Code.INTERNAL

"""``policytest selftest``: are the promises kept on this machine?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from policytest.cli.exit_codes import DONE, Code, complain
from policytest.cli.files import check_files
from policytest.cli.options import Debug, Html, Json, Quiet, Seed
from policytest.cli.output import quiet_stdout, show


def selftest(
    runs: Annotated[int, typer.Option(min=100, max=1_000_000, help="Runs for each error frequency.")] = 300,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
    html: Html = None,
    debug: Debug = False,
) -> int:
    """Check on this machine that delta is kept, certificates verify, and seeds fix results.

    Exit codes: 0 every promise was kept, 2 usage error, 3 interrupted, 4 a promise was broken.
    """
    check_files((), {"--html": html})

    def shown(finding: Any) -> None:
        complain(f"{'kept' if finding.kept else 'BROKEN'}: {finding.name}")

    with quiet_stdout(json):
        from policytest.cli.promises import selftest as check_everything

        found = check_everything(runs, seed, None if quiet else shown)
    show(found, json, html, "Are the promises kept on this machine?", f"{runs} runs for each frequency, seed {seed}")
    return DONE if found.kept else Code.INTERNAL

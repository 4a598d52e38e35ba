"""``python -m policytest`` is the command ``policytest``."""

import sys

from policytest.cli import main

if __name__ == "__main__":
    sys.exit(main())

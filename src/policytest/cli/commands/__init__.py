"""One file for each command: a function that returns an exit code. They are listed in `policytest.cli`."""

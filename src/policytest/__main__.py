"""``python -m policytest`` is the command ``policytest``."""

import sys


def main() -> int:
    """Run the command; an installation that cannot even begin must not end with 1, which is an answer."""
    try:
        from policytest.cli import main as run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 3
    except BaseException as error:
        print(f"internal error: the command line cannot be loaded ({type(error).__name__}: {error})", file=sys.stderr)
        return 4
    return run()


if __name__ == "__main__":
    sys.exit(main())

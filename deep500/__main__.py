"""``python -m deep500`` is the command ``deep500``."""

import signal
import sys

signal.signal(signal.SIGINT, lambda *_: sys.exit(130))  # until there is someone to say it: no traceback of imports


def main() -> int:
    """Run the command line and return the exit code."""
    from deep500 import cli

    signal.signal(signal.SIGINT, signal.default_int_handler)
    return cli.main()


if __name__ == "__main__":
    raise SystemExit(main())

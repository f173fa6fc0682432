"""``python -m deep500`` is the command ``deep500``."""

from deep500.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

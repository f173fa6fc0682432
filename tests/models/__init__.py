"""Networks as other people's collections export them, in every backend: ``python -m tests.models``."""

"""Backends, one folder each, loaded by name through ``deep500.registry``.

The folder stands at the top of the repository and is reached as ``deep500.frameworks`` (a symlink). Importing it
under its bare name would make a second copy of every class in it, and ``isinstance`` would fail between the copies.
"""

if __name__ != "deep500.frameworks":
    raise ImportError(
        "got 'import frameworks'; expected 'import deep500.frameworks': use the full name, "
        "a second copy of the classes would break isinstance"
    )

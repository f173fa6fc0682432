"""Rules and baselines, made and compared offline; nothing at run time imports them (held in ``pyproject.toml``)."""

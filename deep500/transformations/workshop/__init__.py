"""What is made and compared offline; nothing at run time imports it, as a contract in ``pyproject.toml`` holds."""

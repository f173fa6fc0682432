"""Schemes that exchange less than all gradients; :mod:`~deep500.distributed.compression.base` says what they share."""

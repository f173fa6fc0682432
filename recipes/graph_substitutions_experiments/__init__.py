"""What recipes/graph_substitutions.py is made of: networks, timing in turns, one module per experiment, tables."""

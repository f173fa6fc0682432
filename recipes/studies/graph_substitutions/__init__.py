"""What recipes/studies/graph_substitutions is made of: networks, timing in turns, one module per experiment, tables."""

"""How the rules of graph substitutions are made: generated, proved from axioms, lifted to any size, and validated."""

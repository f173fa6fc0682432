"""The making of rules of graph substitutions: generated, proved from axioms, lifted to any size, and validated."""

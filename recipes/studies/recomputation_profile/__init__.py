"""Parts of the study ``recomputation_profile``: its networks, ways to recompute in them, measuring, and printing."""

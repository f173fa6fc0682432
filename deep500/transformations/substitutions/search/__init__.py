"""From a graph and proved rules to a cheaper graph: moves, groups of moves, histories, and backtracking among them."""

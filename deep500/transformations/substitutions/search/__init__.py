"""From a graph and proved rules to a cheaper graph: moves and histories, two searches, the check of what they find."""

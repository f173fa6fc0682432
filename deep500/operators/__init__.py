"""Operator levels: see docs/design.md. Custom operators are not here yet (see README, what works today)."""

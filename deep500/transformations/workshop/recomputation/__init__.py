"""Recomputation, offline: planners to compare with, and plans that were chosen rather than solved."""

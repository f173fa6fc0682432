"""Operator plugins, one folder each."""

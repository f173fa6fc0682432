"""Rewrite rules: their patterns, the file of those that are proved, where they match, and what they build."""

"""Offline: how substitution rules are generated, proved and validated. Nothing at run time imports it."""

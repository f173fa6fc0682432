"""Races of training algorithms over several tasks, and sweeps of one recipe: who is faster, and how sure is that?"""

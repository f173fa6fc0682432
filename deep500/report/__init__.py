"""The page about a run: sections, plots, templates; it is made of a results folder's files and of nothing else."""

"""Strong and weak scaling of a recipe over processes of this machine: time per step, speed-up, quality."""

"""``python -m recipes.studies`` lists the studies; each is a program, ``python -m recipes.studies.<name>``."""

import sys

from deep500.recipe.loader import list_studies


def main() -> int:
    """Print the name and the subject of every study."""
    studies = list_studies()
    width = max(len(study.name) for study in studies)
    for study in studies:
        sys.stdout.write(f"{study.name.ljust(width)}  {study.summary}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

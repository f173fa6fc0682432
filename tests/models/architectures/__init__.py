"""What the table has rows for: one file per family; ``ARCHITECTURES`` lists them all."""

from __future__ import annotations

from tests.models.architectures.architecture import Architecture
from tests.models.architectures.language import LANGUAGE
from tests.models.architectures.others import OTHERS
from tests.models.architectures.structures import STRUCTURES
from tests.models.architectures.vision import VISION

ARCHITECTURES: dict[str, Architecture] = {row.name: row for row in (*VISION, *LANGUAGE, *STRUCTURES, *OTHERS)}

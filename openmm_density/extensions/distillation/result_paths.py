"""The names of what is written of a potential, known before anything slow is imported."""

from __future__ import annotations

import os
from pathlib import Path

SUFFIX = ".safetensors"


def paths_beside(path: str | os.PathLike[str]) -> dict[str, Path]:
    """Return the paths of ``summary``, ``picture`` and ``labels`` of a potential at a path."""
    path = Path(path)
    stem = path.with_suffix("") if path.suffix == SUFFIX else path
    ends = {"summary": ".json", "picture": ".png", "labels": ".labels"}
    return {name: stem.with_name(stem.name + end) for name, end in ends.items()}

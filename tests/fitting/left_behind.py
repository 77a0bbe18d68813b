"""What a fit that is killed would leave behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any


def kept_at(folder: Path, copy: Path, moment: Callable[..., bool]) -> Callable[..., None]:
    """Return what is called with the progress of a fit in a folder, and copies that the first time that the moment has come.

    One run then gives both: the end without an interruption, and what ``kill -9`` would have left at the moment.
    """

    def keep(*progress: Any) -> None:
        if not copy.exists() and moment(*progress):
            shutil.copytree(folder, copy)

    return keep

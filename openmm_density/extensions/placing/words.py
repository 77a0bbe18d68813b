"""What a user writes for models to be placed: ``B.cif``, or ``B.cif:3`` for three copies of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ...base.errors import InputError

MOST = 60
"""Copies of all models together."""


class Part(NamedTuple):
    """A model, and how many copies of it are to be placed."""

    path: Path
    copies: int


def parse_parts(words: Sequence[str]) -> list[Part]:
    """Read models with their numbers of copies.

    Raises
    ------
    InputError
        If a number is none from 1 on, or there are too many.
    """
    parts = [_part(word) for word in words]
    total = sum(part.copies for part in parts)
    if total > MOST:
        raise InputError(
            f"no more than {MOST} models can be placed",
            found=total,
            remedy="give fewer copies, or --symmetry",
        )
    return parts


def _part(word: str) -> Part:
    path, colon, count = word.rpartition(":")
    if not colon or Path(word).exists():
        return Part(Path(word), 1)
    try:
        copies = int(count)
    except ValueError:
        copies = 0
    if copies < 1:
        raise InputError(
            "what follows the colon must be how many copies are to be placed, 1 or more",
            source=path,
            found=f'"{count}"',
            remedy=f"write it as in {Path(path).name or 'B.cif'}:3",
        )
    return Part(Path(path), copies)

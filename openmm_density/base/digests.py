"""Digests of the files that something begun was begun with, so that it goes on with no others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from .atomic_files import read_file
from .errors import InputError


def digest_of(path: str) -> str:
    """Return the SHA-256 of a file."""
    try:
        return hashlib.sha256(read_file(path)).hexdigest()
    except (OSError, ValueError) as error:  # a ValueError where the path holds a zero
        raise InputError(
            f"the fit needs it, and it cannot be read ({getattr(error, 'strerror', None) or error})",
            source=path,
            remedy="put it back",
        ) from None


def check_unchanged(digests: Mapping[str, str | None]) -> None:
    """Refuse to go on where a file is no longer what its digest says."""
    for path, digest in digests.items():
        if digest_of(path) != digest:
            raise InputError(
                "it has changed since the fit began, so that it cannot be resumed",
                source=path,
                remedy="start the fit again",
            )

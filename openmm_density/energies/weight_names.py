"""What an atom's density may be, by the names that ``weights=`` takes."""

from __future__ import annotations

from ..base.errors import InputError

WEIGHTS = ("mass", "unity", "number", "charge", "electron", "xray")
FORM_FACTORS = ("electron", "xray")


def check_weights_name(name: str) -> None:
    """Refuse a name that is none of `WEIGHTS`."""
    if name not in WEIGHTS:
        raise InputError(
            "must be known weights",
            argument="weights",
            found=f'"{name}"',
            remedy=f"use one of {', '.join(WEIGHTS)}, or an array",
        )

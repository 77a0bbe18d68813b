"""Whether a text can be a selection of atoms, which no model is needed for."""

from __future__ import annotations

import re
from textwrap import shorten

from ..base.errors import InputError

NAMED = ("heavy", "all")
"""Selections that are no text of mdtraj's."""


def check_selection(atoms: str) -> None:
    """Refuse what is neither the name of a selection nor one that mdtraj understands."""
    if atoms in NAMED:
        return
    from mdtraj.core.selection import parse_selection

    try:
        parse_selection(atoms)
    except Exception as error:
        raise selection_error(atoms, error) from error


def selection_error(atoms: str, error: Exception) -> InputError:
    """Return the error for a selection that mdtraj has refused."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    hint = ""
    if re.search(r"\bchain(?!id\b)", atoms):
        hint = " (which counts chains, and their parts between gaps, from 0: chainid 0)"
    return InputError(
        f'must be "heavy", "all" or an mdtraj selection{hint} ({shorten(reason, 200, placeholder=" …")})',
        argument="atoms",
        found=f'"{atoms}"',
        remedy='give a selection such as "chainid 0 and name CA"',
    )

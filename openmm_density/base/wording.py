"""How errors and reports put into words what they name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openmm import app


def one_line(error: Exception) -> str:
    """Return the message of another library's error on one line, to stand inside a sentence of ours; its kind if it has none."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def counted(number: int, noun: str, nouns: str = "") -> str:
    """Count things as in ``1 residue`` or ``2 residues``; `nouns`: the plural where it does not end so."""
    return f"{number} {noun if number == 1 else nouns or f'{noun}s'}"


def listing(items: Sequence[str], longest: int = 20) -> str:
    """List names as in ``a, b and 3 more``, at most ``longest`` of them in full."""
    shown = ", ".join(items[:longest])
    return shown if len(items) <= longest else f"{shown} and {len(items) - longest} more"


def residue_label(residue: app.topology.Residue) -> str:
    """Return the name of a residue in messages, as in ``A HIS 57B``."""
    return " ".join(f"{residue.chain.id} {residue.name} {residue.id}{residue.insertionCode}".split())


def atom_label(atom: app.topology.Atom) -> str:
    """Return the name of an atom in messages, as in ``A HIS 57B CA``."""
    return f"{residue_label(atom.residue)} {atom.name}"


def named_atoms(topology: app.Topology, indices: Iterable[int], longest: int = 5) -> str:
    """Return the names of atoms in a message, as in ``A HIS 57B CA, A HIS 57B CB and 3 more``."""
    atoms = list(topology.atoms())
    return listing([atom_label(atoms[int(index)]) for index in indices], longest)

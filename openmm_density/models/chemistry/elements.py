"""Properties of the elements of atoms: radii, metals, hydrogens."""

from __future__ import annotations

from typing import Protocol

import gemmi
from openmm import app


class HasElement(Protocol):
    """An atom of a topology, of a force field template, or anything with an element or None."""

    element: app.element.Element | None


def covalent_radius(atom: HasElement) -> float:
    """Return an atom's covalent radius (Å; gemmi's table), 0.77 where its element is not known."""
    return gemmi.Element(atom.element.symbol).covalent_r if atom.element is not None else 0.77


def is_metal(atom: HasElement) -> bool:
    """Return whether an atom is a metal."""
    return atom.element is not None and gemmi.Element(atom.element.symbol).is_metal


def is_hydrogen(atom: HasElement) -> bool:
    """Return whether an atom is hydrogen or deuterium."""
    return atom.element is not None and atom.element.atomic_number == 1


UNKNOWN = "X"
"""The symbol of an atom whose element the file does not give."""


def openmm_element(symbol: str) -> app.element.Element | None:
    """Return OpenMM's element for a symbol, or None; an unknown atom becomes nitrogen, near a protein's average heavy atom."""
    if symbol == "D":
        return app.element.deuterium
    if symbol == UNKNOWN:
        return app.element.nitrogen
    try:
        return app.element.Element.getBySymbol(symbol)
    except KeyError:
        return None

"""The molecule that a potential is made for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...base.units import takes_units


@takes_units(positions="nm")
@dataclass(frozen=True, eq=False)
class Ligand:
    """One molecule with all its hydrogens.

    Attributes
    ----------
    elements : tuple of int, length n
        Atomic numbers.
    bonds : tuple of (int, int, float)
        Two atoms, the first before the second, and the order of their bond: 1, 2, 3, or 1.5 of an aromatic one.
    charge : int
        The formal charge of the whole, in elementary charges.
    smiles : str
        Canonical, with stereochemistry and without hydrogens that follow from it.
    positions : ndarray, shape (n, 3)
        Those it was given with, or of one conformer, in nm.
    names : tuple of str, length n
        The atoms' names in the file it came from, and else made from elements and numbers.
    """

    elements: tuple[int, ...]
    bonds: tuple[tuple[int, int, float], ...]
    charge: int
    smiles: str
    positions: np.ndarray = field(repr=False)
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.elements)

"""What of a topology the searches need: elements, bonds, residues and contact radii, as arrays over the atoms."""

from __future__ import annotations

import numpy as np
from openmm import app

from ...models.chemistry.contacts import contact_radii
from ...models.chemistry.elements import is_hydrogen, is_metal


class Molecule:
    """The atoms of a model and their bonds.

    `topology` with bonds. Attributes: `bonds` int (B, 2): indices of the atoms that are bonded; `bonded`: the same by
    atom; `residue_of` int (N,): index of each atom's residue; `is_heavy`, `is_metal` bool (N,); `radii` (N,): van der
    Waals radii in Å; `polar` bool (N,): whether an atom may be in a hydrogen bond.
    """

    def __init__(self, topology: app.Topology) -> None:
        self.topology = topology
        self.atoms = list(topology.atoms())
        self.is_heavy = np.array(
            [atom.element is not None and not is_hydrogen(atom) for atom in self.atoms], dtype=bool
        )
        self.is_metal = np.array([is_metal(atom) for atom in self.atoms], dtype=bool)
        self.residue_of = np.array([atom.residue.index for atom in self.atoms], dtype=np.int64)
        self.radii, self.polar = contact_radii(topology)
        pairs = [(a.index, b.index) for a, b in topology.bonds()]
        self.bonds = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        self.bonded: dict[int, list[int]] = {}
        for a, b in pairs:
            self.bonded.setdefault(a, []).append(b)
            self.bonded.setdefault(b, []).append(a)

    def beyond_bond(self, near: int, far: int) -> set[int]:
        """Return the atoms that turn about a bond: all that its far end is joined to other than by the near end."""
        found, front = {far}, [far]
        while front:
            for other in self.bonded[front.pop()]:
                if other not in found and other != near:
                    found.add(other)
                    front.append(other)
        return found - {far}

    def within_bonds(self, atom: int, n_bonds: int) -> set[int]:
        """Return the atoms at most so many bonds from one, with it."""
        found = front = {atom}
        for _ in range(n_bonds):
            front = {other for each in front for other in self.bonded.get(each, ())} - found
            found = found | front
        return found

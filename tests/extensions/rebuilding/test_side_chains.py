"""Side chains and their torsions."""

from __future__ import annotations

import numpy as np

from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.extensions.rebuilding.side_chains import SideChain, turning_side_chain, whole_side_chain
from openmm_density.models import Model

from ...restraints.single_forces import turned_about


def first_side_chain(native: Model, name: str) -> tuple[SideChain, dict[str, int]]:
    """Return the side chain of the first residue of a name, and its atoms by name."""
    molecule = Molecule(native.topology)
    residue = next(r for r in native.topology.residues() if r.name == name)
    turning = turning_side_chain(molecule, residue, molecule.is_heavy)
    index = {atom.name: atom.index for atom in residue.atoms()}
    return whole_side_chain(residue, turning, molecule.is_heavy), index


def test_torsions_are_those_along_the_side_chain(native: Model) -> None:
    tyrosine, index = first_side_chain(native, "TYR")
    behind = [i for name, i in index.items() if name not in ("N", "CA", "C", "O", "CB", "OXT")]
    positions = turned_about(native.positions, index["CA"], index["CB"], np.array(behind), 2 * np.pi / 3)
    before, after = (tyrosine.torsion_angles(x) for x in (native.positions, positions))
    np.testing.assert_allclose((after - before) % 360, (120.0, 0.0), atol=1e-6)
    assert tyrosine.is_other_rotamer(native.positions, positions)
    assert not tyrosine.is_other_rotamer(positions, positions)
    glycine, _ = first_side_chain(native, "GLY")
    assert len(glycine.torsion_angles(positions)) == 0
    assert not glycine.is_other_rotamer(native.positions, positions)


def test_a_ring_that_is_turned_over_is_in_the_same_rotamer(native: Model) -> None:
    tyrosine, index = first_side_chain(native, "TYR")
    atoms = np.array([index[name] for name in ("CD1", "CD2", "CE1", "CE2", "CZ", "OH")])

    def turned(degrees: float) -> np.ndarray:
        return turned_about(native.positions, index["CB"], index["CG"], atoms, np.radians(degrees))

    for degrees, other in ((180.0, False), (150.0, False), (90.0, True), (30.0, False), (-60.0, True)):
        assert tyrosine.is_other_rotamer(native.positions, turned(degrees)) == other


def test_conformations_have_the_torsions_of_their_grid(native: Model) -> None:
    leucine, _ = first_side_chain(native, "LEU")
    conformations = leucine.conformations(native.positions[leucine.atoms])
    assert len(conformations) == len(leucine.grid) == 9
    for angles, conformation in zip(leucine.grid, conformations):
        positions = native.positions.copy()
        positions[leucine.atoms] = conformation
        apart = (leucine.torsion_angles(positions) - angles + 180) % 360 - 180
        np.testing.assert_allclose(apart, 0.0, atol=1e-6)

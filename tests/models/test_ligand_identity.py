"""Whether a residue is a molecule: threonine, which has two chiral centres, as a ligand that nobody knows."""

import numpy as np
from openmm import app

from openmm_density.models.ligand_hydrogens import CompleteMolecule
from openmm_density.models.ligand_identity import handedness, is_of, is_part_of, unlike

NAMES = ("N", "CA", "C", "O", "OXT", "CB", "OG1", "CG2")

BONDS = ((0, 1), (1, 2), (2, 3), (2, 4), (1, 5), (5, 6), (5, 7))

# L-threonine as the wwPDB's component has it, in Å.
PLACES = np.array(
    [
        (1.543, -0.702, 0.430), (0.122, -0.706, 0.056), (-0.038, -0.090, -1.309), (0.732, 0.761, -1.683),
        (-1.039, -0.488, -2.110), (-0.675, 0.104, 1.079), (-0.193, 1.448, 1.103), (-0.511, -0.521, 2.466),
    ]
)  # fmt: skip

# With a hydrogen on each carbon that has one: how many is all that counts.
MOLECULE = CompleteMolecule(
    [*(name[0] for name in NAMES), "H", "H", "H", "H", "H"],
    [*BONDS, (1, 8), (5, 9), (7, 10), (7, 11), (7, 12)],
    np.concatenate([PLACES, np.zeros((5, 3))]),
    "of a test",
)


def residue_of(names=NAMES, order=None):
    """Return a residue of those atoms, in another order."""
    topology = app.Topology()
    residue = topology.addResidue("XYZ", topology.addChain())
    order = range(len(names)) if order is None else order
    atoms = {}
    for k in order:
        atoms[names[k]] = topology.addAtom(names[k], app.Element.getBySymbol(names[k][0]), residue)
    for a, b in BONDS:
        if NAMES[a] in atoms and NAMES[b] in atoms:
            topology.addBond(atoms[NAMES[a]], atoms[NAMES[b]])
    return residue


def places_of(residue, places=PLACES):
    return np.array([places[NAMES.index(atom.name)] for atom in residue.atoms()])


def test_a_residue_is_its_molecule_in_any_order():
    residue = residue_of(order=[7, 2, 5, 0, 3, 1, 6, 4])
    assert is_of(MOLECULE, residue) and not is_part_of(MOLECULE, residue)
    moved = places_of(residue) + np.random.default_rng(0).normal(0, 0.15, (8, 3))
    assert handedness(MOLECULE, residue, moved).other == []
    assert unlike(MOLECULE, residue, moved) == ""


def test_what_lacks_atoms_is_part_of_it():
    residue = residue_of([name for name in NAMES if name not in ("CG2", "OXT")])
    assert is_part_of(MOLECULE, residue) and not is_of(MOLECULE, residue)
    assert unlike(MOLECULE, residue, None) == "lacks 2 of 8 heavy atoms"


def test_a_mirror_image_is_told_and_counts_as_the_same():
    residue = residue_of()
    found = handedness(MOLECULE, residue, -PLACES)
    assert found.is_mirror_image and found.other == ["CA", "CB"]
    assert unlike(MOLECULE, residue, -PLACES) == ""


def test_allothreonine_is_another_molecule():
    swapped = PLACES.copy()
    swapped[[6, 7]] = swapped[[7, 6]]
    residue = residue_of()
    assert unlike(MOLECULE, residue, swapped) == "has the other hand at CB"
    assert unlike(MOLECULE, residue, None) == ""


def test_a_flat_centre_counts_for_neither_hand():
    flat = PLACES.copy()
    normal = np.cross(flat[6] - flat[1], flat[7] - flat[1])
    normal /= np.linalg.norm(normal)
    flat[5] -= normal * float((flat[5] - flat[1]) @ normal)
    assert handedness(MOLECULE, residue_of(), flat).other == []

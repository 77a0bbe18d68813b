from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from openmm import app, unit

from openmm_density.models import Model, prepare, read_model
from openmm_density.models.chemistry.stereocentres import (
    chiral_centres,
    other_centres,
    with_hydrogens_opposite,
)
from openmm_density.models.chemistry.torsions import torsion_angles


def test_natural_handedness_is_positive(kinase: Model) -> None:
    centres = chiral_centres(kinase.topology)
    names = [residue.name for residue in kinase.topology.residues()]
    expected = sum(name != "GLY" for name in names) + sum(name in ("THR", "ILE") for name in names)
    assert len(centres) == expected
    angles = np.degrees(torsion_angles(kinase.positions, centres))
    assert angles.min() > 25 and angles.max() < 45


@pytest.mark.parametrize("name", ["A", "C", "G", "U", "DA", "DC", "DG", "DT"])
def test_sugars_have_positive_centres(name: str) -> None:
    import pdbfixer

    template = app.PDBFile(str(Path(pdbfixer.__file__).parent / "templates" / f"{name}.pdb"))
    centres = chiral_centres(template.topology)
    assert len(centres) == (3 if name.startswith("D") else 4)
    angles = np.degrees(torsion_angles(np.array(template.positions.value_in_unit(unit.angstrom)), centres))
    assert angles.min() > 25 and angles.max() < 45


def test_hydrogens_do_not_change_the_stereocentres_of_a_ligand(small_data: Path) -> None:
    model = read_model(small_data / "emd21457_ntd/6vyb_Ndom.pdb")
    topology, places = app.Topology(), []
    chain = topology.addChain("A")
    sugar = next(residue for residue in model.topology.residues() if residue.name == "NAG")
    copy = topology.addResidue("NAG", chain)
    atoms = {}
    for atom in sugar.atoms():
        atoms[atom] = topology.addAtom(atom.name, atom.element, copy)
        places.append(model.positions[atom.index])
    for a, b in model.topology.bonds():
        if a in atoms and b in atoms:
            topology.addBond(atoms[a], atoms[b])
    without = other_centres(topology, np.array(places))
    assert {list(topology.atoms())[i].name for i in without[:, 0]} == {"C2", "C3", "C4", "C5"} | (
        {"C1"} if any(atom.name == "O1" for atom in sugar.atoms()) else set()
    )
    for name, count in (("C2", 1), ("C3", 1), ("C4", 1), ("C5", 1), ("C6", 2), ("C8", 3), ("N2", 1)):
        centre = next(atom for atom in list(atoms.values()) if atom.name == name)
        for number in range(count):
            hydrogen = topology.addAtom(f"H{name}{number}", app.element.hydrogen, copy)
            topology.addBond(centre, hydrogen)
            places.append(places[centre.index] + [0.0, 0.0, 1.0 + number])
    np.testing.assert_array_equal(other_centres(topology, np.array(places)), without)


def test_a_hydrogen_on_the_side_of_the_other_neighbours_is_put_opposite(small_data: Path) -> None:
    """That of C4′ of a nucleotide, beside where preparation built it."""
    prepared = prepare(read_model(small_data / "zoo/1bna_duplex.pdb"))
    names = {atom.name: atom.index for atom in next(iter(prepared.topology.residues())).atoms()}
    hydrogen, centre = names["H4'"], names["C4'"]
    assert with_hydrogens_opposite(prepared.topology, prepared.positions) is prepared.positions
    wrong = prepared.positions.copy()
    wrong[hydrogen] = 2 * wrong[centre] - wrong[hydrogen]
    mended = with_hydrogens_opposite(prepared.topology, wrong)
    assert np.linalg.norm(mended[hydrogen] - prepared.positions[hydrogen]) < 0.15
    others = np.arange(len(wrong)) != hydrogen
    assert np.array_equal(mended[others], wrong[others])

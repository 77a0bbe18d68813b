from __future__ import annotations

import numpy as np
import pytest
from openmm import app

from openmm_density.models import Model
from openmm_density.restraints import WATER_FORCE_CONSTANT, WaterRestraint, make_restraints

from .single_forces import context_with, energy_at


@pytest.fixture(scope="module")
def restraint(haemoglobin: Model) -> WaterRestraint:
    return WaterRestraint(haemoglobin.topology, haemoglobin.positions)


def test_every_water_is_tied_to_the_nearest_heavy_atoms_of_molecules(haemoglobin, restraint) -> None:
    atoms = list(haemoglobin.topology.atoms())
    waters = [atom.index for atom in atoms if atom.residue.name == "HOH"]
    others = np.array([atom.index for atom in atoms if atom.residue.name != "HOH"])
    assert len(waters) == 24 and restraint.held.tolist() == waters
    for water in waters:
        apart = np.linalg.norm(haemoglobin.positions[others] - haemoglobin.positions[water], axis=1)
        near = others[np.argsort(apart)[:6]]
        assert set(restraint.pairs[restraint.pairs[:, 0] == water, 1]) == set(near)
    assert restraint.notes == ["24 waters are held beside the atoms around."]


def test_springs_are_the_formula_and_give_up(haemoglobin, restraint) -> None:
    context = context_with(restraint.create_force(), len(haemoglobin.positions))
    assert energy_at(context, haemoglobin.positions + np.array([5.0, 3.0, -2.0])) == pytest.approx(
        0, abs=1e-6
    )
    rng = np.random.default_rng(0)
    for scale in (0.2, 2.0, 30.0):
        shaken = haemoglobin.positions + rng.normal(scale=scale, size=haemoglobin.positions.shape)
        i, j = restraint.pairs.T
        off = (np.linalg.norm(shaken[i] - shaken[j], axis=1) - restraint.lengths) / 10
        exact = 0.5 * WATER_FORCE_CONSTANT * off**2 / (1 + off**2 / 0.2**2)
        assert energy_at(context, shaken) == pytest.approx(exact.sum(), rel=1e-6)
        assert exact.max() < 0.5 * WATER_FORCE_CONSTANT * 0.2**2


def test_a_water_that_left_is_violated_and_one_whose_neighbour_left_is_not(haemoglobin, restraint) -> None:
    assert not restraint.violations(haemoglobin.positions)
    moved = haemoglobin.positions.copy()
    water, neighbour = restraint.pairs[0]
    moved[neighbour] += 6.0
    assert not restraint.violations(moved)
    moved = haemoglobin.positions.copy()
    moved[water] += [4.0, 4.0, 4.0]
    (violation,) = restraint.violations(moved)
    residue = list(haemoglobin.topology.atoms())[water].residue
    assert violation.residues[0] == f"{residue.chain.id} HOH {residue.id}"
    assert violation.deviation > 1.0 and violation.unit == "Å"


@pytest.mark.parametrize("name", ["HOH", "SOL", "TIP3"])
def test_single_ions_are_tied_as_waters_are_and_hydrogens_ride(name) -> None:
    topology = app.Topology()
    chain = topology.addChain("A")
    carbon, oxygen, hydrogen, sodium = map(app.element.get_by_symbol, ("C", "O", "H", "Na"))
    ligand = topology.addResidue("LIG", chain)
    for number in (1, 2, 3):
        topology.addAtom(f"C{number}", carbon, ligand)
    water = topology.addResidue(name, chain)
    topology.addAtom("H1", hydrogen, water)
    topology.addAtom("O", oxygen, water)
    topology.addAtom("NA", sodium, topology.addResidue("NA", chain))
    positions = np.array([[0.0, 0, 0], [1.5, 0, 0], [3, 0, 0], [1, 3.5, 0], [1, 3, 0], [2, -3, 0]])
    restraint = WaterRestraint(topology, positions)
    assert restraint.held.tolist() == [4, 5]
    assert {tuple(pair) for pair in restraint.pairs.tolist()} == {(i, j) for i in (4, 5) for j in (0, 1, 2)}
    assert restraint.notes[0].startswith("1 water and 1 single ion are held")


def test_a_model_without_waters_holds_nothing(emd5925: Model) -> None:
    (restraint,) = make_restraints("water", emd5925.topology, emd5925.positions)
    assert restraint.n_terms == 0 and not restraint.notes
    assert restraint.create_force().getNumBonds() == 0 and not restraint.violations(emd5925.positions)

"""The clashscore by MolProbity's definition."""

import numpy as np
import pytest
from openmm import app

from openmm_density.models.preparation import prepare
from openmm_density.models.structures import read_model
from openmm_density.validation.all_atom_contacts import (
    RidingHydrogens,
    all_atom_contacts,
    contacts_of_prepared,
)


def molecules(*groups):
    """Return a topology and places of residues, each a list of (name, element, place) whose first atom is bound to the others."""
    topology, places = app.Topology(), []
    chain = topology.addChain("A")
    for name, atoms in groups:
        residue, first = topology.addResidue(name, chain), None
        for atom_name, symbol, place in atoms:
            atom = topology.addAtom(atom_name, app.Element.getBySymbol(symbol), residue)
            if first is not None:
                topology.addBond(first, atom)
            first = first or atom
            places.append(place)
    return topology, np.array(places, dtype=float)


def carbon(x):
    return "MOL", [("C1", "C", (x, 0, 0))]


def water(x):
    return "HOH", [("O", "O", (x, 0, 0))]


@pytest.mark.parametrize(("distance", "clashes"), [(2.95, 1), (3.05, 0)])
def test_two_atoms_clash_from_four_tenths_of_overlap(distance, clashes):
    found = all_atom_contacts(*molecules(carbon(0.0), carbon(distance)))
    assert len(found.clashes) == clashes and found.n_atoms == 2 and found.clashscore == 500.0 * clashes
    if clashes:
        assert found.clashes[0].overlap == pytest.approx(3.4 - distance, abs=0.03)


def test_waters_are_met_but_not_by_each_other_and_do_not_count():
    found = all_atom_contacts(*molecules(carbon(0.0), water(2.5), water(4.0)))
    assert [(clash.first, clash.second) for clash in found.clashes] == [(0, 1)] and found.n_atoms == 1
    assert all_atom_contacts(*molecules(water(0.0), water(1.0))).clashscore is None


def test_a_hydrogen_bond_may_overlap_and_a_hydrogen_on_carbon_may_not():
    def pair(parent):
        donor = "DON", [("X", parent, (0, 0, 0)), ("H", "H", (1.0, 0, 0))]
        return molecules(donor, ("ACC", [("O", "O", (2.7, 0, 0))]))

    assert all_atom_contacts(*pair("N")).clashes == []
    assert len(all_atom_contacts(*pair("C")).clashes) >= 1


def test_atoms_that_are_not_there_do_not_clash():
    topology, places = molecules(carbon(0.0), carbon(2.5))
    found = all_atom_contacts(topology, places, np.array([1.0, 0.05]))
    assert found.clashes == [] and found.n_atoms == 1


@pytest.fixture(scope="module")
def prepared(small_data):
    return prepare(read_model(small_data / "emd5925_frag" / "5925_native.pdb"))


def test_with_built_hydrogens_it_is_near_that_of_reduce_and_probe(prepared):
    found = contacts_of_prepared(prepared.topology, prepared.input_index, prepared.positions)
    # By reduce 4.16 and probe 2.26, called as MolProbity calls them: 33 clashes of 1509 atoms, and 15 of 765 without hydrogens.
    assert found.n_atoms == 1509 and found.clashscore == pytest.approx(21.9, abs=5)
    model = prepared.model
    without = all_atom_contacts(model.topology, model.positions)
    assert without.n_atoms == 765 and len(without.clashes) == pytest.approx(15, abs=1)
    missing = contacts_of_prepared(
        prepared.topology, prepared.input_index, prepared.positions, np.zeros(len(model.positions))
    )
    assert missing.n_atoms == 0 and missing.clashscore is None


def test_riding_hydrogens_are_at_ideal_angles_and_keep_their_bonds(prepared):
    topology, places = prepared.topology, prepared.positions
    ridden = RidingHydrogens(topology).at(places)
    assert np.allclose(RidingHydrogens(topology).at(ridden), ridden, atol=1e-9)
    atoms = list(topology.atoms())
    heavy = [atom.index for atom in atoms if atom.element.symbol != "H"]
    assert np.array_equal(ridden[heavy], places[heavy])
    residue = next(residue for residue in topology.residues() if residue.name == "LYS")
    at = {atom.name: ridden[atom.index] for atom in residue.atoms()}
    before = {atom.name: places[atom.index] for atom in residue.atoms()}

    def angle(first, middle, last):
        one, other = at[first] - at[middle], at[last] - at[middle]
        return np.degrees(np.arccos(one @ other / np.linalg.norm(one) / np.linalg.norm(other)))

    assert angle("HB2", "CB", "HB3") == pytest.approx(109.5)
    assert angle("HB2", "CB", "CA") == pytest.approx(angle("HB3", "CB", "CA"), abs=0.1)
    assert 100 < angle("HA", "CA", "N") < 115 and np.array_equal(at["HZ1"], before["HZ1"])
    for name in ("HA", "HB2", "HB3"):
        # Which of two is which stays.
        assert np.linalg.norm(at[name] - before[name]) < 0.5
        bonds = [np.linalg.norm(each[name] - each["CA" if name == "HA" else "CB"]) for each in (at, before)]
        assert bonds[0] == pytest.approx(bonds[1])


@pytest.mark.filterwarnings("error")
def test_atoms_in_one_place_have_contacts_without_warnings(prepared):
    topology, places = prepared.topology, prepared.positions.copy()
    first, second = next(bond for bond in topology.bonds() if "H" in {atom.element.symbol for atom in bond})
    places[first.index] = places[second.index]
    assert np.isfinite(RidingHydrogens(topology).at(places)).all()
    assert all_atom_contacts(topology, places).n_atoms == topology.getNumAtoms()
    assert contacts_of_prepared(prepared.topology, prepared.input_index, places).clashscore > 0
    heavy = [atom.index for atom in topology.atoms() if atom.element.symbol != "H"]
    places[heavy] = places[heavy[0]]
    assert np.isfinite(RidingHydrogens(topology).at(places)).all()

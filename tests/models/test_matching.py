"""Which residues of two models are the same."""

from __future__ import annotations

from types import SimpleNamespace as Namespace

import gemmi
import mdtraj
import numpy as np
import pytest
from openmm import app, unit

from openmm_density.base.errors import InputError
from openmm_density.models import read_model
from openmm_density.models.matching import ca_rmsd, match_alpha_carbons, match_ligands

from ..small_models import ADK_CLOSED, ADK_OPEN


def alpha_carbons(path):
    """Read Cα positions by chain, number and insertion code, with gemmi alone."""
    structure = gemmi.read_structure(str(path))
    return {
        (chain.name, str(residue.seqid)): np.array(atom.pos.tolist())
        for chain in structure[0]
        for residue in chain
        for atom in residue
        if atom.name == "CA" and atom.element.name == "C"
    }


def renumbered(topology, *, chain=None, offset=0, names=None):
    """Copy a topology with other chain ids, numbers or names."""
    copy = app.Topology()
    for old_chain in topology.chains():
        new_chain = copy.addChain(old_chain.id if chain is None else chain)
        for residue in old_chain.residues():
            number = str(int(residue.id) + offset)
            new = copy.addResidue(names or residue.name, new_chain, number, residue.insertionCode)
            for atom in residue.atoms():
                copy.addAtom(atom.name, atom.element, new)
    return copy


def parts(topology, keep):
    """Copy the residues for which keep(residue) is true."""
    copy = app.Topology()
    for old_chain in topology.chains():
        new_chain = copy.addChain(old_chain.id)
        for residue in old_chain.residues():
            if keep(residue):
                new = copy.addResidue(residue.name, new_chain, residue.id, residue.insertionCode)
                for atom in residue.atoms():
                    copy.addAtom(atom.name, atom.element, new)
    return copy


def names_of(topology, indices):
    atoms = list(topology.atoms())
    return [(atoms[i].residue.name, atoms[i].residue.id, atoms[i].name) for i in indices]


@pytest.mark.parametrize(
    ("model", "reference", "n_pairs", "expected"),
    [
        (ADK_OPEN, ADK_CLOSED, 214, 6.91),
        ("emd6187_kinesin/1bg2_K_fitted.pdb", "emd6187_kinesin/chain_K_box_complete.pdb", 116, 1.79),
        ("emd3488_5ni1/5me2.pdb", "emd3488_5ni1/5ni1_updated.cif", 440, 0.64),
    ],
    ids=["kinase", "kinesin", "haemoglobin"],
)
def test_real_pairs(small_data, model, reference, n_pairs, expected):
    first, second = read_model(small_data / model), read_model(small_data / reference)
    pairs = match_alpha_carbons(first.topology, second.topology)
    assert len(pairs[0]) == len(pairs[1]) == n_pairs
    assert ca_rmsd(first.positions, second.positions, pairs) == pytest.approx(expected, abs=0.01)


def test_same_chains_agree_with_gemmi(small_data):
    paths = [small_data / "emd3488_5ni1" / name for name in ("5me2.pdb", "5ni1_updated.cif")]
    first, second = map(alpha_carbons, paths)
    common = sorted(first.keys() & second.keys())
    oracle = np.sqrt(np.mean([((first[key] - second[key]) ** 2).sum() for key in common]))
    models = [read_model(path) for path in paths]
    pairs = match_alpha_carbons(models[0].topology, models[1].topology)
    assert len(pairs[0]) == len(common)
    assert ca_rmsd(models[0].positions, models[1].positions, pairs) == pytest.approx(oracle, abs=1e-3)


def test_other_numbering_is_paired_by_sequence(kinesin_path):
    topology = read_model(kinesin_path).topology
    kept = parts(renumbered(topology, chain="Z", offset=7), lambda residue: int(residue.id) % 50 > 3)
    indices, reference_indices = match_alpha_carbons(kept, topology)
    mine, theirs = names_of(kept, indices), names_of(topology, reference_indices)
    assert len(mine) == sum(1 for atom in kept.atoms() if atom.name == "CA")
    right = [
        a[0] == b[0] and int(a[1]) == int(b[1]) + 7 and a[2] == b[2] == "CA" for a, b in zip(mine, theirs)
    ]
    # Next to a gap the sequence alone may leave open on which side a residue belongs.
    assert np.mean(right) > 0.97


def test_chains_in_another_order_are_paired_by_sequence(small_data):
    topology = read_model(small_data / "emd3488_5ni1" / "5me2.pdb").topology
    ids = list(dict.fromkeys(chain.id for chain in topology.chains()))
    swapped = app.Topology()
    for number, wanted in enumerate((ids[1], ids[0])):
        chain = swapped.addChain("XY"[number])
        for residue in (r for r in topology.residues() if r.chain.id == wanted):
            new = swapped.addResidue(residue.name, chain, residue.id)
            for atom in residue.atoms():
                swapped.addAtom(atom.name, atom.element, new)
    indices, reference_indices = match_alpha_carbons(swapped, topology)
    atoms, reference_atoms = list(swapped.atoms()), list(topology.atoms())
    names = {
        (atoms[i].residue.name == reference_atoms[j].residue.name) for i, j in zip(indices, reference_indices)
    }
    assert names == {True} and len(indices) == 220


def test_copies_with_other_ids_are_told_apart_by_their_places(small_data):
    folder = small_data / "emd3488_5ni1"
    start, second = (read_model(folder / name) for name in ("5me2.pdb", "5ni1_updated.cif"))
    first, places = app.Topology(), []
    for old, new in zip("CDAB", ("Aa", "Ba", "Ab", "Bb")):
        chain = first.addChain(new)
        for residue in (r for r in start.topology.residues() if r.chain.id == old):
            copied = first.addResidue(residue.name, chain, residue.id)
            for atom in residue.atoms():
                first.addAtom(atom.name, atom.element, copied)
                places.append(start.positions[atom.index])
    first = Namespace(topology=first, positions=np.array(places))
    blind = match_alpha_carbons(first.topology, second.topology)
    assert ca_rmsd(first.positions, second.positions, blind) > 20
    seeing = match_alpha_carbons(
        first.topology, second.topology, positions=first.positions, reference_positions=second.positions
    )
    assert len(seeing[0]) == len(blind[0])
    assert ca_rmsd(first.positions, second.positions, seeing) < 1


def test_copies_in_another_order_are_told_apart_by_their_places(kinesin_path):
    model = read_model(kinesin_path)
    n, shift = len(model.positions), np.array([60.0, 0, 0])
    nowhere = np.zeros((n, 3)) * unit.nanometer
    topologies = []
    for ids in ("AB", "YZ"):
        double = app.Modeller(renumbered(model.topology, chain=ids[0]), nowhere)
        double.add(renumbered(model.topology, chain=ids[1]), nowhere)
        topologies.append(double.topology)
    positions = np.concatenate([model.positions, model.positions + shift])
    reference = np.concatenate([model.positions + shift, model.positions]) + np.array([0, 2.0, 0])
    pairs = match_alpha_carbons(*topologies, positions=positions, reference_positions=reference)
    assert ca_rmsd(positions, reference, pairs) == pytest.approx(2.0)
    assert ca_rmsd(positions, reference, match_alpha_carbons(*topologies)) == pytest.approx(
        np.hypot(60, 2), abs=0.1
    )


def test_a_model_without_its_sequence_is_paired_by_number(kinesin_path):
    topology = read_model(kinesin_path).topology
    alanines = renumbered(topology, names="ALA")
    indices, reference_indices = match_alpha_carbons(alanines, topology)
    assert np.array_equal(indices, reference_indices)
    assert len(indices) == sum(1 for atom in topology.atoms() if atom.name == "CA")


def test_force_field_names_are_the_same_residues():
    topologies = []
    for names, offset in (
        (["HIS", "CYS", "ASP", "GLU", "LYS", "MET"], 0),
        (["HIE", "CYX", "ASH", "GLH", "LYN", "MSE"], 40),
    ):
        topology = app.Topology()
        chain = topology.addChain("A")
        for number, name in enumerate(names):
            residue = topology.addResidue(name, chain, str(number + offset))
            topology.addAtom("CA", app.element.carbon, residue)
        topologies.append(topology)
    indices, reference_indices = match_alpha_carbons(*topologies)
    assert indices.tolist() == reference_indices.tolist() == list(range(6))


def test_copies_without_chain_ids_are_told_apart(kinesin_path):
    single = renumbered(read_model(kinesin_path).topology, chain="")
    double = app.Modeller(single, np.zeros((single.getNumAtoms(), 3)) * unit.nanometer)
    double.add(single, np.zeros((single.getNumAtoms(), 3)) * unit.nanometer)
    indices, reference_indices = match_alpha_carbons(double.topology, double.topology)
    assert np.array_equal(indices, reference_indices)
    assert len(indices) == 2 * sum(1 for atom in single.atoms() if atom.name == "CA")


def test_copies_are_told_apart_between_chains_of_other_ids():
    topologies = []
    for ids in ("ABA", "AAB"):
        topology = app.Topology()
        for chain in map(topology.addChain, ids):
            for number in range(4):
                residue = topology.addResidue("SER" if chain.id == "A" else "TRP", chain, str(number))
                topology.addAtom("CA", app.element.carbon, residue)
        topologies.append(topology)
    indices, reference_indices = match_alpha_carbons(*topologies)
    assert indices.tolist() == list(range(12))
    assert reference_indices.tolist() == [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7]


def test_insertion_codes_tell_residues_apart_also_where_mdtraj_has_lost_them():
    topology = app.Topology()
    chain = topology.addChain("A")
    for name, number, code in zip(
        ("HIS", "GLY", "TRP", "SER", "PHE", "LYS"), "556678", ("", "A", "", "B", "", "")
    ):
        residue = topology.addResidue(name, chain, number, code)
        topology.addAtom("CA", app.element.carbon, residue)
    without = parts(topology, lambda residue: residue.name != "HIS")
    indices, reference_indices = match_alpha_carbons(without, topology)
    assert reference_indices.tolist() == [1, 2, 3, 4, 5]
    indices, reference_indices = match_alpha_carbons(mdtraj.Topology.from_openmm(topology), topology)
    assert indices.tolist() == reference_indices.tolist() == [0, 2, 4, 5]


def test_nucleotides_are_paired_by_phosphorus_else_by_c1():
    topologies = []
    for first_has_phosphorus in (False, True):
        topology = app.Topology()
        chain = topology.addChain("R")
        for number, name in enumerate(("A", "C", "G", "DT")):
            residue = topology.addResidue(name, chain, str(number))
            if number or first_has_phosphorus:
                topology.addAtom("P", app.element.phosphorus, residue)
            topology.addAtom("C1'", app.element.carbon, residue)
        topologies.append(topology)
    pairs = match_alpha_carbons(*topologies)
    for topology, indices in zip(topologies, pairs):
        assert [name for _, _, name in names_of(topology, indices)] == ["C1'", "P", "P", "P"]


def test_calcium_is_no_alpha_carbon(kinesin_path):
    topology = read_model(kinesin_path).topology
    with_calcium = app.Topology()
    chain = with_calcium.addChain("A")
    for number in range(1, 400):
        residue = with_calcium.addResidue("CA", chain, str(number))
        with_calcium.addAtom("CA", app.element.calcium, residue)
    with pytest.raises(InputError, match="have 0 and 118 residues"):
        match_alpha_carbons(with_calcium, topology)


def test_unrelated_proteins_are_refused(small_data, kinesin):
    others = (ADK_OPEN, "emd3488_5ni1/5me2.pdb", "emd6374_frag/6374_native.pdb")
    for other in others:
        with pytest.raises(InputError, match="at least 3 must be paired"):
            match_alpha_carbons(read_model(small_data / other).topology, kinesin.topology)


def test_rmsd_takes_units_and_does_not_superpose():
    positions = np.array([[0, 0, 0], [9, 9, 9], [1, 0, 0]], dtype=float)
    pairs = (np.array([0, 2]), np.array([0, 1]))
    reference = np.array([[3, 0, 0], [1, 4, 0]], dtype=float)
    assert ca_rmsd(positions, reference, pairs) == pytest.approx(np.sqrt((9 + 16) / 2))
    in_nanometers = (reference / 10) * unit.nanometer
    assert ca_rmsd(positions, in_nanometers, pairs) == pytest.approx(np.sqrt((9 + 16) / 2))


def ligands(places):
    """Return a model of a glycine, and ligands of two atoms with these names in these places."""
    topology, positions = app.Topology(), []
    chain = topology.addChain("A")
    glycine = topology.addResidue("GLY", chain, "1")
    for name in ("N", "CA", "C"):
        topology.addAtom(name, app.element.carbon, glycine)
        positions.append((0.0, 0.0, len(positions)))
    for number, (name, place) in enumerate(places, 2):
        residue = topology.addResidue(name, chain, str(number))
        for k in range(2):
            topology.addAtom(("P", "O1")[k], app.element.phosphorus, residue)
            positions.append(np.add(place, (0.0, 0.0, k)))
    return topology, np.array(positions)


def test_ligands_are_paired_by_name_and_place():
    model, positions = ligands(
        [("PO4", (9, 0, 0)), ("PO4", (12, 0, 0)), ("HEM", (30, 0, 0)), ("HOH", (5, 0, 0)), ("ZN", (50, 0, 0))]
    )
    reference, reference_positions = ligands(
        [
            ("HEM", (31, 2, 0)),
            ("HOH", (5, 0, 0)),
            ("PO4", (13, 0, 0)),
            ("PO4", (9.4, 0, 0)),
            ("ZN", (59, 0, 0)),
        ]
    )
    pairs = match_ligands(model, reference, positions, reference_positions)
    assert pairs == [(1, 4), (2, 3), (3, 1)]


def test_a_ligand_far_away_does_not_take_the_place_of_another():
    model, positions = ligands([("PO4", (100, 0, 0)), ("PO4", (7, 0, 0))])
    reference, reference_positions = ligands([("PO4", (0, 0, 0))])
    assert match_ligands(model, reference, positions, reference_positions) == [(2, 1)]
    assert match_ligands(model, ligands([])[0], positions, ligands([])[1]) == []


def test_the_haems_of_haemoglobin_find_those_of_the_deposited_model(small_data):
    folder = small_data / "emd3488_5ni1"
    start, deposited = read_model(folder / "5me2.pdb"), read_model(folder / "5ni1_updated.cif")
    pairs = match_ligands(start.topology, deposited.topology, start.positions, deposited.positions)
    residues, others = list(start.topology.residues()), list(deposited.topology.residues())
    names = [(residues[i].name, others[j].name) for i, j in pairs]
    assert names.count(("HEM", "HEM")) == 4
    assert all(residues[i].chain.id == others[j].chain.id for i, j in pairs)

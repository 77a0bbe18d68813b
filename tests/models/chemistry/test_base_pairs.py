from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from openmm import app

from openmm_density.base.wording import residue_label
from openmm_density.models import Model, read_model
from openmm_density.models.chemistry.base_pairs import Bases, find_base_pairs
from openmm_density.restraints import BasePairRestraint
from openmm_density.validation.nucleic_acids import NucleicAcids, base_pair_changes

from ...small_models import turned_about

# The pairs of 4P5J that barnaba 0.1.9 and RNApolis 0.16 agree on; those with a single hydrogen bond between N and O left out.
WATSON_CRICK = [
    (2, 74), (3, 18), (4, 17), (5, 16), (6, 15), (7, 14), (10, 49), (19, 39), (20, 38), (21, 37), (22, 36), (24, 34), (25, 33),
    (43, 57), (44, 56), (45, 55), (46, 54), (58, 72), (59, 71), (60, 70), (64, 81), (65, 80), (66, 79), (67, 78), (68, 77),
    (69, 76), (23, 35),
]  # fmt: skip
OTHERS = {(8, 52): "tWW", (47, 51): "tWH", (63, 83): "tWW", (71, 75): "cSS"}


def by_number(topology: app.Topology, positions: np.ndarray) -> dict[tuple[int, int], str]:
    found = find_base_pairs(topology, positions)
    numbers = [int(residue.id) for residue in topology.residues()]
    return {
        (numbers[a], numbers[b]): family for (a, b), family in zip(found.residues.tolist(), found.families)
    }


def test_all_pairs_of_the_dodecamer_of_drew_and_dickerson(dna: Model) -> None:
    assert by_number(dna.topology, dna.positions) == {(k, 25 - k): "cWW" for k in range(1, 13)}
    found = find_base_pairs(dna.topology, dna.positions)
    names = [atom.name for atom in dna.topology.atoms()]
    atoms = {tuple(sorted((names[a], names[b]))) for a, b in found.bonds.tolist()}
    assert atoms == {("N4", "O6"), ("N1", "N3"), ("N2", "O2"), ("N6", "O4")}
    assert np.bincount(found.owners).tolist() == [3, 3, 3, 3, 2, 2, 2, 2, 3, 3, 3, 3]
    assert (
        found.labels([residue_label(each) for each in dna.topology.residues()])[0] == "A DC 1 - B DG 24 (cWW)"
    )


def test_pairs_and_families_of_a_folded_rna_are_those_of_two_other_programs(rna: Model) -> None:
    found = by_number(rna.topology, rna.positions)
    theirs = {**dict.fromkeys(WATSON_CRICK, "cWW"), **OTHERS}
    assert {pair: found.get(pair) for pair in theirs} == theirs
    # One of the two has these two as well, by other families.
    assert set(found) - set(theirs) == {(9, 48), (12, 50)}


def test_pairs_do_not_depend_on_place_order_and_names(rna: Model) -> None:
    plain = by_number(rna.topology, rna.positions)
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))
    turn *= np.sign(np.linalg.det(turn))
    assert by_number(rna.topology, rna.positions @ turn.T + 100) == plain
    topology = app.Topology()
    places = []
    for residue in reversed(list(rna.topology.residues())):
        copy = topology.addResidue("XXX", topology.addChain(), residue.id)
        for atom in residue.atoms():
            topology.addAtom(atom.name.replace("'", "*"), atom.element, copy)
            places.append(rna.positions[atom.index])
    turned = by_number(topology, np.array(places))
    assert {(b, a): family[0] + family[2] + family[1] for (a, b), family in turned.items()} == plain


def test_bases_that_are_stacked_or_apart_are_no_pairs(small_data: Path, emd5925: Model, rna: Model) -> None:
    strand = read_model(small_data / "zoo/1bna_strand.pdb")
    assert by_number(strand.topology, strand.positions) == {}
    assert by_number(rna.topology, 1.6 * rna.positions) == {}
    assert by_number(emd5925.topology, emd5925.positions) == {}
    assert by_number(app.Topology(), np.zeros((0, 3))) == {}


def test_bases_that_face_each_other_and_cannot_pair_are_told(small_data: Path, rna: Model) -> None:
    model = read_model(small_data / "zoo/1bna_duplex.pdb")
    assert not len(Bases(rna.topology).mismatched(find_base_pairs(rna.topology, rna.positions)))
    found = find_base_pairs(model.topology, model.positions)
    fewer = replace(found, residues=np.delete(found.residues, 6, axis=0))
    assert not len(Bases(model.topology).mismatched(fewer))  # open, but by their sequence a pair
    thymine = next(residue for residue in model.topology.residues() if residue.id == "7")
    next(atom for atom in thymine.atoms() if atom.name == "O4").name = "N4"  # a cytosine beside adenine
    assert Bases(model.topology).mismatched(fewer).tolist() == [[6, 17]]
    # Its bonds would be 3.7 Å or longer: they count as those of a stretched start, but are not held.
    assert len(find_base_pairs(model.topology, model.positions).residues) == len(found.residues)
    restraint = BasePairRestraint(model.topology, model.positions)
    assert restraint.n_terms == len(found.bonds) - 2
    (note,) = restraint.notes[1:]
    assert "sequence forbids it: A DT 7 - B DA 18." in note


def test_pairs_that_heat_or_a_bend_hides_in_a_start_are_held(dna: Model, rna: Model) -> None:
    atoms = [{atom.name: atom.index for atom in residue.atoms()} for residue in dna.topology.residues()]
    bases, every = Bases(dna.topology), {(k, 23 - k) for k in range(12)}

    def found_and_held(positions: np.ndarray) -> list[set[tuple[int, int]]]:
        both = bases.pairs(positions), bases.pairs_to_hold(positions)
        return [set(map(tuple, each.residues.tolist())) for each in both]

    assert found_and_held(dna.positions) == [every, every]
    # Both bases of A DA 5 - B DT 20 are turned about the atoms that bond them: the planes are 60° apart, the bonds as they were.
    tilted = dna.positions.copy()
    for row, (first, second), angle in ((4, ("N1", "N6"), 30), (19, ("N3", "O4"), -30)):
        base = np.array([place for name, place in atoms[row].items() if "P" not in name])
        ends = atoms[row][first], atoms[row][second]
        tilted = turned_about(tilted, *ends, base, np.radians(angle))
    assert found_and_held(tilted) == [every - {(4, 19)}, every]
    assert {tuple(pair) for pair in bases.bonded(tilted).tolist()} == every
    nucleic = NucleicAcids(dna.topology)
    before, after = map(nucleic.report, (dna.positions, tilted))
    assert len(after.base_pairs) == 11 and base_pair_changes(before, after)["base_pairs_lost"] == []
    # One is pulled away within the plane, until its bonds are 4.3 Å long: a helix goes on there.
    opened = dna.positions.copy()
    bond = opened[atoms[19]["N3"]] - opened[atoms[4]["N1"]]
    opened[list(atoms[19].values())] += 1.4 * bond / np.linalg.norm(bond)
    assert found_and_held(opened) == [every - {(4, 19)}, every]
    assert base_pair_changes(before, nucleic.report(opened))["base_pairs_lost"] == [before.base_pairs[4]]
    held = bases.pairs_to_hold(opened)
    names = [atom.name for atom in dna.topology.atoms()]
    assert [[names[k] for k in bond] for bond in held.bonds[held.owners == 11].tolist()] == [
        ["N6", "O4"],
        ["N1", "N3"],
    ]
    # What two other programs do not find in a deposited model is not held.
    plain, held = (
        find_base_pairs(rna.topology, rna.positions),
        Bases(rna.topology).pairs_to_hold(rna.positions),
    )
    assert held.residues.tolist() == plain.residues.tolist() and held.families == plain.families

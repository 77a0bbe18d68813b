"""How residues before and after a fit come to stand beside those of a reference."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from openmm import app

from openmm_density.fitting import agreement


def test_ligands_stand_beside_those_of_the_reference():
    def model(*places):
        topology, positions = app.Topology(), []
        chain = topology.addChain("A")
        for number, place in enumerate(places):
            residue = topology.addResidue("GLY" if number < 3 else "HEM", chain, str(number + 1))
            topology.addAtom("CA" if number < 3 else "FE", app.element.carbon, residue)
            positions.append((place, 0.0, 0.0))
        return SimpleNamespace(topology=topology, positions=np.array(positions))

    given, reference = model(0, 4, 8, 20, 50), model(0, 4, 8, 52, 21, 90)
    names = [f"A GLY {n}" for n in (1, 2, 3)] + ["A HEM 4", "A HEM 5", "A HEM 6"]
    reports = {
        stage: {
            "residues": [
                {"residue": name, "correlation": number / 10, "q_score": None}
                for number, name in enumerate(names[:count])
            ]
        }
        for stage, count in (("initial", 5), ("final", 5), ("reference", 6))
    }
    pairs = agreement.pairs_with(given, reference)
    rows = agreement.residues_beside(given, given.positions, reference, reports, pairs)
    assert [row["correlation_reference"] for row in rows] == [0.0, 0.1, 0.2, 0.4, 0.3]


@pytest.mark.parametrize(
    ("atoms", "expected"),
    [(["CA"], "Cα RMSD"), (["P"], "backbone (P) RMSD"), (["CA", "P", "C1'"], "backbone (Cα, P, C1′) RMSD")],
)
def test_a_distance_is_called_by_its_atoms(atoms, expected):
    assert agreement.Matched(atoms, 40, 97).rmsd == expected


def test_what_was_matched_is_counted():
    topology = app.Topology()
    chain = topology.addChain("A")
    for name, atoms in (("ALA", ["N", "CA"]), ("DA", ["C1'"]), ("DG", ["P", "C1*"]), ("CA", ["CA"])):
        residue = topology.addResidue(name, chain)
        for atom in atoms:
            topology.addAtom(atom, app.element.carbon, residue)
    result = SimpleNamespace(prepared=SimpleNamespace(model=SimpleNamespace(topology=topology)))
    assert agreement._matched(result, np.array([1, 3])) == agreement.Matched(["CA", "P"], 2, 3)
    assert agreement._matched(result, np.array([2, 4])) == agreement.Matched(["C1'"], 2, 3)


def test_the_poorest_come_first_and_water_never():
    kinds = ("polymer", "water", "other", "polymer")
    rows = [{"kind": kind, "correlation_final": value} for kind, value in zip(kinds, (0.5, 0.1, 0.3, None))]
    assert [place for place, _ in agreement.poorest(rows, "final")] == [2, 0]

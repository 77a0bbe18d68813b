"""How residues before and after a fit come to stand beside those of a reference."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from openmm import app

from openmm_density.fitting.output import agreement


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
    prepared = SimpleNamespace(model=given, input_positions=lambda positions: positions)
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
    rows = agreement._residues(
        SimpleNamespace(reference=reference),
        SimpleNamespace(prepared=prepared, final=given.positions),
        reports,
    )
    assert [row["correlation_reference"] for row in rows] == [0.0, 0.1, 0.2, 0.4, 0.3]

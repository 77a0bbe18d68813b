from __future__ import annotations

import json
import math

import numpy as np
import pytest
from openmm import unit

from openmm_density.base.errors import InputError
from openmm_density.models import read_model
from openmm_density.models.chemistry.planes import find_planes, planarity_report


def test_the_report_counts_measures_and_sorts(small_data):
    model = read_model(small_data / "emd5925_frag/5925_native.pdb")
    planes = find_planes(model.topology, model.positions)
    positions = model.positions.copy()
    atom = next(a for a in model.topology.atoms() if a.residue.name == "TRP" and a.name == "CZ3")
    members = next(p.atoms for p in planes.planes if p.residue_name == "TRP" and atom.index in p.atoms)
    spread = positions[list(members)]
    normal = np.linalg.svd(spread - spread.mean(axis=0))[2][2]
    positions[atom.index] += 0.8 * normal
    report = planarity_report(model.topology, planes, positions * 0.1 * unit.nanometer)
    assert report.n_planes == len(planes.planes) == sum(row.n_planes for row in report.rows)
    assert report.rms == pytest.approx(planes.rms(positions), rel=1e-9)
    assert report.worst == report.rows[0].worst == pytest.approx(planes.worst(positions), rel=1e-9)
    assert [row.worst for row in report.rows] == sorted((row.worst for row in report.rows), reverse=True)
    first = report.rows[0]
    assert (first.residue_name, first.kind) == ("TRP", "ring")
    assert first.worst_atom == f"A TRP {atom.residue.id} CZ3"
    assert 0.4 < first.worst < 0.8
    members = [len(plane.atoms) for plane in planes.planes]
    sizes = {(row.residue_name, row.kind): 0 for row in report.rows}
    for plane, size in zip(planes.planes, members):
        sizes[plane.residue_name, plane.kind] += size
    squares = sum(row.rms**2 * sizes[row.residue_name, row.kind] for row in report.rows)
    assert math.sqrt(squares / sum(members)) == pytest.approx(report.rms, rel=1e-9)
    counted = {(row.residue_name, row.kind): row.n_planes for row in report.rows}
    assert counted == {
        (name, kind): n for name, kinds in planes.by_residue().items() for kind, n in kinds.items()
    }
    written = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert written["rows"][0]["worst_atom"] == first.worst_atom
    with pytest.raises(InputError, match="must be one for each"):
        planarity_report(model.topology, planes, positions[1:])
    positions[atom.index] = math.nan
    with pytest.raises(InputError, match=f"A TRP {atom.residue.id} that is not a number"):
        planarity_report(model.topology, planes, positions)

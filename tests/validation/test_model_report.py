from __future__ import annotations

import json

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.models import read_model
from openmm_density.validation.correlation import MapCorrelation
from openmm_density.validation.fsc import model_fsc
from openmm_density.validation.geometry import geometry_report
from openmm_density.validation.model_report import map_report, report, residue_changes
from openmm_density.validation.q_score import q_scores

from ..small_models import shaken

RESOLUTION = 3.64


@pytest.fixture(scope="module")
def map_path(small_data):
    return small_data / "emd5925_frag" / "emd5925.mrc.gz"


@pytest.fixture(scope="module")
def density_map(map_path):
    return DensityMap.from_file(map_path)


@pytest.fixture(scope="module")
def native(small_data):
    return read_model(small_data / "emd5925_frag" / "5925_native.pdb")


@pytest.fixture(scope="module")
def start(native):
    return shaken(native, 0.6)


@pytest.fixture(scope="module")
def reports(density_map, native, start):
    return [report(model.topology, model.positions, density_map, RESOLUTION) for model in (start, native)]


def test_a_report_holds_what_each_measure_gives(reports, density_map, native):
    found = json.loads(json.dumps(reports[1], allow_nan=False))
    topology, positions = native.topology, native.positions
    overall, residues = MapCorrelation(density_map, topology, RESOLUTION).evaluate(positions)
    scores = q_scores(density_map, topology, positions)
    curve = model_fsc(density_map, topology, positions, RESOLUTION)
    assert (found["resolution"], found["cc_mask"], found["q_score"]) == (RESOLUTION, overall, scores.mean)
    assert found["fsc_resolution"] == curve.resolution() and found["fsc_falls"] is True
    assert found["fsc"]["frequency"] == curve.frequency.tolist()
    assert found["residues"][3] == {
        "residue": "A ALA 4",
        "chain": "A",
        "name": "ALA",
        "number": 4,
        "insertion_code": "",
        "kind": "polymer",
        "correlation": residues[3],
        "q_score": scores.residues[3],
    }
    assert len(found["residues"]) == 94
    assert found["geometry"] == geometry_report(topology, positions).as_dict()


def test_residues_side_by_side(reports, density_map, native):
    moved = report(native.topology, native.positions + np.array([1.0, 0, 0]), density_map, RESOLUTION)
    rows = residue_changes(moved, reports[1])
    assert rows[0]["residue"] == "A MET 1" and "q_score_reference" not in rows[0]
    beside = residue_changes(moved, moved, [None, *reports[1]["residues"][1:]])
    assert beside[0]["q_score_reference"] is None
    assert beside[1]["correlation_reference"] == reports[1]["residues"][1]["correlation"]
    assert rows[0]["correlation_initial"] == moved["residues"][0]["correlation"]
    assert rows[0]["q_score_final"] == reports[1]["residues"][0]["q_score"]
    assert np.mean([row["q_score_final"] > row["q_score_initial"] for row in rows]) > 0.7
    shorter = dict(moved, residues=moved["residues"][1:])
    with pytest.raises(InputError, match="different models"):
        residue_changes(shorter, moved)


def test_what_is_undefined_is_none(density_map, native):
    away = native.positions.copy()
    residue = list(native.topology.residues())[5]
    away[[atom.index for atom in residue.atoms()]] += 60
    found = report(native.topology, away, density_map, RESOLUTION)
    assert found["residues"][5]["residue"] == "A ASP 6"
    assert found["residues"][5]["correlation"] is found["residues"][5]["q_score"] is None
    outside = map_report(native.topology, native.positions + 500.0, density_map, RESOLUTION)
    assert outside["cc_mask"] == 0.0
    assert outside["q_score"] is outside["fsc"] is outside["fsc_resolution"] is outside["fsc_falls"] is None
    with pytest.raises(InputError, match="positions"):
        report(native.topology, away[1:], density_map, RESOLUTION)

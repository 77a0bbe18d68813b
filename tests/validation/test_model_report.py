from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.cli import main
from openmm_density.validation.correlation import MapCorrelation
from openmm_density.validation.fsc import model_fsc
from openmm_density.validation.geometry import geometry_report
from openmm_density.validation.model_report import map_report, report, residue_changes
from openmm_density.validation.q_score import q_scores

from ..small_models import shaken

RESOLUTION = 3.64


@pytest.fixture(scope="module")
def start(emd5925):
    return shaken(emd5925, 0.6)


@pytest.fixture(scope="module")
def reports(map5925, emd5925, start):
    return [report(model.topology, model.positions, map5925, RESOLUTION) for model in (start, emd5925)]


def test_a_report_holds_what_each_measure_gives(reports, map5925, emd5925):
    found = json.loads(json.dumps(reports[1], allow_nan=False))
    topology, positions = emd5925.topology, emd5925.positions
    overall, residues = MapCorrelation(map5925, topology, RESOLUTION).evaluate(positions)
    scores = q_scores(map5925, topology, positions)
    curve = model_fsc(map5925, topology, positions, RESOLUTION)
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


def test_residues_side_by_side(reports, map5925, emd5925):
    moved = report(emd5925.topology, emd5925.positions + np.array([1.0, 0, 0]), map5925, RESOLUTION)
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


def test_what_is_undefined_is_none(map5925, emd5925):
    away = emd5925.positions.copy()
    residue = list(emd5925.topology.residues())[5]
    away[[atom.index for atom in residue.atoms()]] += 60
    found = report(emd5925.topology, away, map5925, RESOLUTION)
    assert found["residues"][5]["residue"] == "A ASP 6"
    assert found["residues"][5]["correlation"] is found["residues"][5]["q_score"] is None
    outside = map_report(emd5925.topology, emd5925.positions + 500.0, map5925, RESOLUTION)
    assert outside["cc_mask"] == 0.0
    assert outside["q_score"] is outside["fsc"] is outside["fsc_resolution"] is outside["fsc_falls"] is None
    with pytest.raises(InputError, match="positions"):
        report(emd5925.topology, away[1:], map5925, RESOLUTION)


@pytest.fixture(scope="module")
def half_maps(map5925, tmp_path_factory):
    """Write the map twice, each time with a little noise of its own."""
    folder, paths = tmp_path_factory.mktemp("halves"), []
    for seed in (1, 2):
        noise = np.random.default_rng(seed).normal(scale=0.02 * map5925.data.std(), size=map5925.shape)
        paths.append(folder / f"half_{seed}.mrc")
        replace(map5925, data=map5925.data + noise).write(paths[-1])
    return paths


def test_score_prints_what_is_asked_for(capsys, small_data, half_maps, reports):
    model = str(small_data / "emd5925_frag/5925_native.pdb")
    arguments = ["score", model, str(small_data / "emd5925_frag" / "emd5925.mrc.gz"), "--resolution", "3.64"]
    halves = [word for path in half_maps for word in ("--half-map", str(path))]
    assert main([*arguments, "--q-score", "--fsc", *halves, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["q_score"] == [pytest.approx(reports[1]["q_score"], abs=1e-4)]
    assert found["fsc_resolution"] == [pytest.approx(reports[1]["fsc_resolution"], abs=1e-3)]
    assert found["fsc_falls"] == [True]
    assert len(found["residue_q_scores"][0]) == len(found["residue_labels"]) == 94
    curve = found["half_map_fsc"]
    assert min(curve["correlation"]) > 0.5 and found["half_map_falls"] is False
    assert found["half_map_resolution"] == pytest.approx(1 / curve["frequency"][-1])
    assert main([*arguments, "--q-score", "--sigma", "0.4", "--fsc"]) == 0
    printed = capsys.readouterr().out
    assert "CC 0.7652  Q 0.3717 (0.44 is usual)  FSC 0.5 at 3.59 Å" in printed
    assert main([*arguments, *halves]) == 0
    last = 1 / curve["frequency"][-1]
    assert f"half maps: FSC above 0.143 up to {last:.2f} Å\n" in capsys.readouterr().out

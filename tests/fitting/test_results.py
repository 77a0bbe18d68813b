"""What a fit leaves in summary.json, on a fragment of adenylate kinase."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from openmm import app
from scipy.spatial.transform import Rotation

from openmm_density.cli.outcome import print_outcome
from openmm_density.errors import InputError
from openmm_density.fitting import RunFolder, results
from openmm_density.fitting.flexible_fit import FlexibleFit
from openmm_density.fitting.half_maps import StrengthScan
from openmm_density.fitting.locks import FolderLock
from openmm_density.fitting.protocols import find_protocol
from openmm_density.fitting.results import MOST_STRETCHES, OutputFolder
from openmm_density.models import read_model
from openmm_density.validation.correlation import residue_correlations
from openmm_density.validation.fsc import model_fsc
from openmm_density.validation.geometry import geometry_report
from openmm_density.validation.q_score import q_scores

from ..fragments import RESOLUTION, fragment, map_of

RESIDUES = 24
STAGES = ("initial", "final", "reference")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Give a short fit."""
    folder = tmp_path_factory.mktemp("results")
    reference = fragment(folder / "reference.pdb", residues=RESIDUES)
    model = fragment(folder / "model.pdb", (1.0, -0.8, 0.6), RESIDUES)
    protocol = replace(find_protocol("quick", RESOLUTION), strength=30.0, minimize_last=20).with_steps(80)
    fit = FlexibleFit(
        model,
        map_of(RESIDUES, 0.1, 0, folder),
        RESOLUTION,
        protocol,
        threads=1,
        report_interval=40,
        reference=reference,
    )
    return fit, fit.run(), OutputFolder(folder / "out")


@pytest.fixture(scope="module")
def summary(fitted):
    fit, result, folder = fitted
    folder.write(fit, result, "model.pdb", "target.mrc")
    text = (folder.path / "summary.json").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 400 and '"resolution": "Å"' in text
    return json.loads(text)


@pytest.fixture(scope="module")
def models(fitted):
    """Give topology and positions by stage; what is after is read from the file."""
    fit, _, folder = fitted
    after = read_model(folder.path / "fitted.pdb")
    given = fit.prepared.model
    return {
        "initial": (given.topology, given.positions),
        "final": (after.topology, after.positions),
        "reference": (fit.reference.topology, fit.reference.positions),
    }


@pytest.mark.parametrize("stage", STAGES)
def test_every_model_is_assessed(summary, models, fitted, stage):
    density_map, (topology, positions) = fitted[0].density_map, models[stage]
    # Positions in a PDB file have three decimals.
    scores = q_scores(density_map, topology, positions)
    assert summary[f"q_score_{stage}"] == pytest.approx(scores.mean, abs=1e-3)
    curve = model_fsc(density_map, topology, positions, RESOLUTION)
    assert summary[f"fsc_{stage}"]["frequency"] == pytest.approx(curve.frequency)
    assert summary[f"fsc_{stage}"]["correlation"] == pytest.approx(curve.correlation, abs=1e-2)
    assert summary[f"fsc_resolution_{stage}"] == pytest.approx(curve.resolution(), abs=1e-2)
    assert summary[f"fsc_falls_{stage}"] is curve.crossing().falls
    correlations = residue_correlations(density_map, topology, positions, RESOLUTION)
    rows = summary["residues"]
    # A voxel can come to lie on the other side of 3 Å.
    assert [row[f"correlation_{stage}"] for row in rows] == pytest.approx(correlations, abs=1e-2)
    assert [row[f"q_score_{stage}"] for row in rows] == pytest.approx(scores.residues, abs=1e-2)


def test_residues_are_those_of_the_model(summary, models):
    topology = models["initial"][0]
    found = [(row["chain"], row["number"], row["name"]) for row in summary["residues"]]
    assert found == [(each.chain.id, int(each.id), each.name) for each in topology.residues()]
    worst = min(summary["residues"], key=lambda row: row["correlation_final"])
    assert summary["worst_residues"][0] == {
        "residue": worst["residue"],
        "correlation": worst["correlation_final"],
    }


def test_the_geometry_of_the_reference_is_told(summary, models):
    expected = geometry_report(*models["reference"]).as_dict()
    assert summary["geometry_reference"] == expected
    assert summary["geometry_final"].keys() == expected.keys()
    assert 0 < summary["planarity_rms_reference"] <= summary["planarity_worst_reference"] < 0.3


def test_units_are_of_keys_that_are_there(summary):
    names = set()

    def collect(value):
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            collect(part)
        if isinstance(value, dict):
            names.update(value)

    collect({name: value for name, value in summary.items() if name != "units"})
    ends = ("", "_initial", "_relaxed", "_final", "_reference")
    missing = {name for name in summary["units"] if not any(name + end in names for end in ends)}
    # Of a placement, and of what was rebuilt.
    assert missing == {"moved_by", "gain", "chi_before", "chi_after"}


@pytest.fixture
def without_pictures(monkeypatch):
    """Leave out what takes most of the time."""
    for name in ("plot_residues", "plot_overview", "plot_progress"):
        monkeypatch.setattr(results, name, lambda *_: None)


def test_a_folder_of_states_serves_one_fit_at_a_time(fitted, tmp_path):
    with FolderLock(tmp_path), pytest.raises(InputError, match="a fit is running in it"):
        fitted[0].run(RunFolder(tmp_path))


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
    rows = results._residues(
        SimpleNamespace(reference=reference),
        SimpleNamespace(prepared=prepared, final=given.positions),
        reports,
    )
    assert [row["correlation_reference"] for row in rows] == [0.0, 0.1, 0.2, 0.4, 0.3]


def test_a_fit_that_bends_a_haem_is_doubted():
    def ligand(rms):
        return {"residue": "A HEM 201", "rms": rms}

    summary = {
        "flat_ligands_initial": [ligand(0.06), {**ligand(0.1), "residue": "B HEM 201"}],
        "flat_ligands_final": [ligand(0.4), {**ligand(0.12), "residue": "B HEM 201"}],
    }
    (doubt,) = results._bent_doubts(summary)
    assert "A HEM 201 (0.06 to 0.40 Å)" in doubt and "B HEM" not in doubt
    assert results._bent_doubts({"flat_ligands_initial": [], "flat_ligands_final": []}) == []


def test_turned_centres_and_peptides_are_doubted(fitted, tmp_path, without_pictures):
    fit, result, _ = fitted
    assert {"cis", "chirality"} <= {restraint.name for restraint in fit.restraints}
    atoms = {(int(a.residue.id), a.name): a.index for a in fit.prepared.topology.atoms()}
    turned = result.final.copy()
    # Cβ to the other side of the plane of its three neighbours, and a peptide's plane half way round.
    n, ca, c, cb = (turned[atoms[5, name]] for name in ("N", "CA", "C", "CB"))
    normal = np.cross(n - ca, c - ca)
    normal /= np.linalg.norm(normal)
    turned[atoms[5, "CB"]] = cb - 2 * ((cb - ca) @ normal) * normal
    axis = turned[atoms[13, "N"]] - turned[atoms[12, "C"]]
    turn = Rotation.from_rotvec(np.pi / 2 * axis / np.linalg.norm(axis))
    behind = [
        index for (number, name), index in atoms.items() if number >= 13 and (number, name) != (13, "N")
    ]
    turned[behind] = turn.apply(turned[behind] - turned[atoms[13, "N"]]) + turned[atoms[13, "N"]]

    found = OutputFolder(tmp_path / "out").write(fit, replace(result, final=turned), "model", "map")
    (centre,) = (doubt for doubt in found["doubts"] if "chiral" in doubt)
    assert re.search(r"flat or inverted: A LEU 5 \(handedness of CA -\d+\.\d°, held at 35\.3°\):", centre)
    (peptide,) = (doubt for doubt in found["doubts"] if "peptide bonds" in doubt)
    assert re.search(r"flipped: A GLY 12 - A LYS 13 \(ω -?\d+\.\d°, held at 180\.0°\):", peptide)

    # Where nothing was held, what changed over is named.
    free = FlexibleFit.__new__(FlexibleFit)
    vars(free).update(vars(fit), restraints=[])
    found = OutputFolder(tmp_path / "free").write(free, replace(result, final=turned), "model", "map")
    (centre,) = (doubt for doubt in found["doubts"] if "chiral" in doubt)
    assert "A LEU 5 CA: look" in centre
    assert found["inverted_centres"] == ["A LEU 5 CA"]

    # Where it is held, it is its hold that counts.
    assert results._turned_doubts(fit, result, found) == []


def test_a_metal_that_lost_its_ligand_is_doubted():
    topology = app.Topology()
    chain = topology.addChain("A")
    for name, element, number in (("SG", app.element.sulfur, 1), ("ZN", app.element.zinc, 2)):
        residue = topology.addResidue("CYS" if name == "SG" else "ZN", chain, str(number))
        topology.addAtom(name, element, residue)
    prepared = SimpleNamespace(topology=topology, links=[(0, 1)])

    def ended(length):
        positions = [np.array([[0.0, 0, 0], [0, 0, z]]) for z in (2.3, length)]
        return SimpleNamespace(prepared=prepared, initial=positions[0], final=positions[1])

    (doubt,) = results._stretched_doubt(ended(3.4))
    assert "A CYS 1 SG - A ZN 2 ZN (2.3 to 3.4 Å)" in doubt
    assert results._stretched_doubt(ended(2.5)) == results._stretched_doubt(ended(1.5)) == []


def test_half_maps_are_told_of_with_their_steps_and_time(fitted, tmp_path, without_pictures):
    fit, result, _ = fitted
    scan = StrengthScan([5.0, 10.0], [0.7, 0.8], [0.6, 0.65], 10.0, 1200, 50.0)
    found = OutputFolder(tmp_path / "out").write(fit, result, "model", "map", scan)
    assert found["half_maps"]["steps_each"] == 1200
    assert found["wall_seconds"] == pytest.approx(result.wall_seconds + 50.0)
    assert any(
        "0.650 at 10 kJ/mol per atom, after 1200 steps at each: 10 was" in note for note in found["notes"]
    )
    assert any("strongest pull, 10 kJ/mol" in doubt and "fitted.pdb" in doubt for doubt in found["doubts"])
    limited = replace(scan, free=[0.65, 0.6], chosen=5.0)
    assert results._strength_doubt(limited) == results._strength_doubt(None) == []


def test_residues_where_the_map_is_empty_are_named(fitted, tmp_path, without_pictures):
    fit, result, _ = fitted
    density_map = fit.density_map
    away = result.final + np.array([0.0, 0.0, density_map.shape[0] * 1.2])
    data = np.concatenate([density_map.data, np.zeros_like(density_map.data)])
    masked = FlexibleFit.__new__(FlexibleFit)
    vars(masked).update(vars(fit), density_map=replace(density_map, data=data))
    found = OutputFolder(tmp_path / "out").write(masked, replace(result, final=away), "model", "map")
    assert found["residues"][9]["correlation_final"] is None
    assert found["residues"][9]["correlation_initial"] is not None
    (note,) = (note for note in found["notes"] if "null" in note)
    assert note.startswith("No correlation after the fit") and "A ALA 8" in note
    assert found["fsc_resolution_final"] is None and found["fsc_falls_final"] is False


def test_without_a_reference_there_is_none(fitted, tmp_path, without_pictures):
    fit, result, _ = fitted
    alone = FlexibleFit.__new__(FlexibleFit)
    vars(alone).update(vars(fit), reference=None)
    found = OutputFolder(tmp_path / "out").write(
        alone, replace(result, cc_reference=None, ca_rmsd_initial=None, ca_rmsd_final=None), "model", "map"
    )
    assert found["geometry_reference"] is found["q_score_reference"] is found["fsc_reference"] is None
    assert "q_score_reference" not in found["residues"][0] and found["q_score_final"] is not None


def test_doubtful_stretches_are_told_of_in_a_sentence_each(fitted, tmp_path, monkeypatch, without_pictures):
    fit, result, _ = fitted
    spoilt = result.final.copy()
    moved = [atom.index for atom in fit.prepared.topology.atoms() if int(atom.residue.id) in range(9, 15)]
    spoilt[moved] += np.array([0.0, 4.0, 4.0])
    found = OutputFolder(tmp_path / "out").write(fit, replace(result, final=spoilt), "model", "map")
    named = [doubt for doubt in found["doubts"] if doubt.startswith("residue")]
    assert 1 <= len(named) <= MOST_STRETCHES
    assert "worse than before" in named[0]
    monkeypatch.setattr(results, "MOST_STRETCHES", 0)
    found = OutputFolder(tmp_path / "other").write(fit, replace(result, final=spoilt), "model", "map")
    assert any("more stretch" in doubt and "residues.png" in doubt for doubt in found["doubts"])


def test_what_was_rebuilt_is_told_of(fitted, tmp_path, capsys, without_pictures):
    fit, result, _ = fitted
    stretch = {"chain": "A", "first": "4", "last": "6", "rows": [3, 4, 5], "shifted_by": 1, "gain": 61.5}
    side_chain = {"residue": "A LEU 5", "row": 4, "chi_before": [-60, 60], "chi_after": [180, 60]}
    search = {"stage": "heat", "step": 8, "places_tried": 2, "undone": False, "wall_seconds": 3.2}
    search |= {"stretches": [stretch], "side_chains": [side_chain]}
    found = OutputFolder(tmp_path / "out").write(fit, replace(result, rebuilding=[search]), "model", "map")
    written = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert found["rebuilding"] == written["rebuilding"] == [search]
    marked = {row["number"]: row for row in written["residues"] if row["rebuilt"]}
    assert list(marked) == [4, 5, 6] and all(row["shifted_by"] == 1 for row in marked.values())
    assert [row["residue"] for row in written["residues"] if row["turned"]] == ["A LEU 5"]
    print_outcome(found, tmp_path)
    line = "rebuilt: A 4-6 shifted by +1 (62 kJ/mol), 1 side chain turned; 1 search, 3 s"
    assert line in capsys.readouterr().out.splitlines()


def test_a_model_outside_the_map_has_results_all_the_same(fitted, tmp_path):
    fit, result, _ = fitted
    away = replace(result, final=result.final + 300.0)
    found = OutputFolder(tmp_path / "out").write(fit, away, "model", "map")
    assert found["q_score_final"] is found["fsc_final"] is None
    assert found["residues"][0]["correlation_final"] is None
    assert any("outside the map" in doubt for doubt in found["doubts"])
    assert (tmp_path / "out" / "residues.png").exists()

"""What a fit of a fragment of adenylate kinase has doubted and noted."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from openmm_density.base.errors import with_arguments
from openmm_density.fitting.agreement import model_agreement
from openmm_density.fitting.final_strength import LEAST
from openmm_density.fitting.fit_map import FitMap
from openmm_density.fitting.flexible_fit import FlexibleFit
from openmm_density.fitting.half_maps import StrengthScan
from openmm_density.fitting.installed_extensions import Unfinished
from openmm_density.fitting.protocols import Protocol, Stage
from openmm_density.models import read_model
from openmm_density.report import doubts, notes
from openmm_density.report.doubts import _half_map_doubt
from openmm_density.report.local_geometry import changed_elements
from openmm_density.report.summary import summarize
from openmm_density.restraints import find_violations
from openmm_density.validation import stretches
from openmm_density.validation.stretches import DoubtfulStretch

from ..fitting import damaged_models
from ..small_models import hetatm, turned_about, written


def summarized(fit, result, scan=None):
    return summarize(fit, result, model_agreement(fit, result), "model", "map", scan)


def test_what_became_worse_is_a_doubt_of_its_kind_with_its_places():
    found = [
        {
            "kind": "bond",
            "atoms": "A G 4 O3' - A DT 5 P",
            "initial": 1.6,
            "final": 2.22,
            "usual": [1.61, 1.61],
        },
        {
            "kind": "bond",
            "atoms": "A GLY 9 C - A GLY 9 OXT",
            "initial": None,
            "final": 3.2,
            "usual": [1.25, 1.25],
        },
        {"kind": "plane", "atoms": "A HEM 201 CHA", "initial": 0.06, "final": 0.4, "usual": [0.0, 0.1]},
        {"kind": "metal", "atoms": "A MG 7 MG", "initial": 0.0, "final": 2.04, "usual": [0.0, 1.5]},
        {
            "kind": "contact",
            "atoms": "A HOH 5 O - A LYS 3 NZ.B",
            "initial": 3.9,
            "final": 1.45,
            "usual": [2.2, None],
        },
        {"kind": "centre", "atoms": "A ILE 3 CB", "initial": 0.7, "final": -0.6, "usual": [0.77, 0.77]},
        {"kind": "centre", "atoms": "A ASP 51 CA", "initial": None, "final": 0.01, "usual": [0.77, 0.77]},
    ]
    stretched, chirality, bent, metal, contacts = doubts.worse_doubts(found)
    assert (
        "A G 4 O3' - A DT 5 P (1.60 to 2.22 Å, usual 1.61), A GLY 9 C - A GLY 9 OXT (3.20 Å, built, usual"
        in (stretched.sentence.replace(" and ", ", "))
    )
    assert stretched.places[0].members == ("A G 4 O3'", "A DT 5 P")
    assert "A HEM 201 CHA (0.06 to 0.40 Å, usual 0.00 to 0.10)" in bent.sentence
    assert "A MG 7 MG (moved by 2.0 Å)" in metal.sentence
    assert (
        "(3.90 to 1.45 Å, usual from 2.20)" in contacts.sentence
        and "A ILE 3 CB (inverted), A ASP 51 CA (flat, built or flat before)" in chirality.sentence
    )
    kinds = [doubt.kind for doubt in (stretched, chirality, bent, metal, contacts)]
    assert kinds == ["stretched", "chirality", "bent", "metal", "contacts"]
    assert doubts.worse_doubts([]) == []


def test_residues_that_fit_the_map_clearly_worse_than_at_the_start_are_doubted():
    """As of alanine 146 in a model of 1VSN, whose peptide turned by 120°, and of the residues of a usual map."""
    rows = [
        {"residue": name, "kind": kind, "correlation_initial": before, "correlation_final": after}
        for name, kind, before, after in (
            ("A ALA 146", "polymer", 0.980, 0.936),
            ("A GLY 147", "polymer", 0.972, 0.980),
            ("A SER 148", "polymer", 0.990, 0.975),
            ("A LEU 149", "polymer", 0.70, 0.55),
            ("A HOH 201", "water", 0.95, 0.30),
            ("A LYS 150", "polymer", None, 0.30),
        )
    ]
    (doubt,) = doubts._worse_residues_doubt([], rows)
    assert doubt.kind == "worse" and [place.label for place in doubt.places] == ["A ALA 146"]
    assert "clearly less than at the start: A ALA 146 (0.98 to 0.94): look" in doubt.sentence
    assert doubts._worse_residues_doubt([], [{**rows[0], "correlation_reference": 0.93}, *rows[1:]]) == []
    told = DoubtfulStretch("A", "146", "147", (0, 1), "correlation", True, 0.9, 0.98)
    assert doubts._worse_residues_doubt([told], rows) == []


def test_an_atom_with_another_element_than_its_file_gives_it_is_doubted(tmp_path):
    lines = [
        hetatm(1, " UNK", "UNX", 1, np.zeros(3), "X"),
        hetatm(2, "ZN  ", "ZN", 2, np.full(3, 5.0), ""),
        hetatm(3, " C1", "LIG", 3, np.full(3, 9.0), "C"),
    ]
    model = read_model(written(tmp_path / "unknown.pdb", lines))
    assert changed_elements(model) == []
    uranium, carbon = replace(model.records[0], element="U"), replace(model.records[2], element="N")
    found = changed_elements(replace(model, records=(uranium, model.records[1], carbon)))
    (doubt,) = doubts.worse_doubts(each.as_dict() for each in found)
    assert doubt.kind == "elements"
    assert "A UNX 1 UNK (X to U), A LIG 3 C1 (C to N): correct" in doubt.sentence


def test_turned_centres_and_peptides_are_doubted(fitted):
    fit, result = fitted
    assert {"cis", "chirality"} <= {restraint.name for restraint in fit.restraints}
    atoms = {(int(a.residue.id), a.name): a.index for a in fit.prepared.topology.atoms()}
    turned = result.final.copy()
    # Cβ to the other side of the plane of its three neighbours, and a peptide's plane half way round.
    n, ca, c, cb = (turned[atoms[5, name]] for name in ("N", "CA", "C", "CB"))
    normal = np.cross(n - ca, c - ca)
    normal /= np.linalg.norm(normal)
    turned[atoms[5, "CB"]] = cb - 2 * ((cb - ca) @ normal) * normal
    behind = [
        index for (number, name), index in atoms.items() if number >= 13 and (number, name) != (13, "N")
    ]
    turned = turned_about(turned, atoms[12, "C"], atoms[13, "N"], behind, np.pi / 2)

    found = summarized(fit, replace(result, final=turned))
    (centre,) = (doubt for doubt in found["doubts"] if "chiral" in doubt)
    assert "A LEU 5 CA (inverted)" in centre and found["inverted_centres"] == ["A LEU 5 CA"]
    (peptide,) = (doubt for doubt in found["doubts"] if "peptide bonds" in doubt)
    assert re.search(r"flipped at the end: A GLY 12 - A LYS 13 \(ω -?\d+\.\d°, held at 180\.0°\):", peptide)

    # Where nothing was held, what changed over is named; where it is held, it is its hold that counts.
    flipped = {"peptide_flips": ["A GLY 12 CA - A LYS 13 CA"]}
    assert "A GLY 12 CA - A LYS 13 CA: look" in doubts._peptide_doubt({}, flipped)[0].sentence
    assert doubts._peptide_doubt(find_violations(fit.restraints, result.final), found) == []


def test_what_was_bad_in_the_start_is_told_and_rings_that_stay_pierced_are_doubted(tmp_path):
    pierced = damaged_models.damaged(tmp_path, "a pierced ring")
    fit = damaged_models.fit_of(pierced, tmp_path, "CPU")
    (note,) = notes._strain_note(fit)
    ring = "A PHE 19 (by B LYS 13 CD - B LYS 13 CE)"
    assert "relaxed in stages" in note and f"rings pierced by bonds: {ring}" in note
    assert notes._strain_note(damaged_models.fit_of(damaged_models.native(tmp_path), tmp_path, "CPU")) == []
    (doubt,) = doubts._pierced_doubt({"pierced_rings_final": [ring]})
    assert (
        doubt.sentence == f"bonds pass through rings, which no molecule has: {ring}: rebuild the model there."
    )
    (place,) = doubt.places
    assert place.members == ("A PHE 19", "B LYS 13 CD", "B LYS 13 CE")
    assert doubts._pierced_doubt({"pierced_rings_final": []}) == []


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        (
            [("draw", 20, 6.0, False)],
            "at step 20 of 100, in stage 1 of 3 (draw): the model is between its start and a fit. The density had pulled with "
            "up to 20% of its full strength; the rest of draw, hold, anneal have not happened yet, so it is not annealed. ",
        ),
        (
            [("draw", 40, 15.0, False), ("hold", 10, 30.0, True)],
            "at step 50 of 100, in stage 2 of 3 (hold): the model is between its start and a fit. The density had pulled with "
            "up to 100% of its full strength; anneal has not happened yet, so",
        ),
        (
            [("draw", 40, 15.0, False), ("hold", 30, 30.0, False), ("anneal", 30, 30.0, False)],
            "at step 100 of 100, after its last stage: only the last minimisation is cut short.",
        ),
        ([], "at step 0 of 100, before its first stage: the model was only minimised"),
    ],
)
def test_an_interrupted_fit_is_doubted_first_and_says_what_has_not_happened(stages, said):
    protocol = Protocol(
        (Stage("draw", 40), Stage("hold", 30), Stage("anneal", 30, temperature=(300.0, 10.0))), strength=30.0
    )
    started = [dict(zip(("name", "steps", "strength", "converged"), stage)) for stage in stages]
    steps = sum(stage["steps"] for stage in started)
    result = SimpleNamespace(interrupted=True, unfinished=None, steps=steps, stages=started, strength=30.0)
    unfinished = Unfinished("the search for an ensemble", "go on with the fit")
    (doubt,) = doubts.interruption(protocol, result)
    assert doubt.sentence.startswith(f"the fit was interrupted {said}") and doubt.kind == "interrupted"
    assert doubts.interruption(protocol, SimpleNamespace(interrupted=False)) == []
    (doubt,) = doubts.interruption(protocol, SimpleNamespace(interrupted=True, unfinished=unfinished))
    assert doubt.sentence.startswith(
        "the search for an ensemble was interrupted: these results are those of the fit of one model"
    )


def test_half_maps_are_told_of_with_their_steps_and_time(fitted):
    fit, result = fitted
    scan = StrengthScan([5.0, 10.0], [0.7, 0.8], [0.6, 0.65], 10.0, 1200, 50.0)
    found = summarized(fit, result, scan)
    assert found["half_maps"]["steps_each"] == 1200
    parts = found["seconds_by_part"]
    assert parts["half_maps"] == 50.0 and parts.keys() > {"preparation", "minimization", "dynamics"}
    assert found["wall_seconds"] == pytest.approx(fit.stopwatch.seconds + 50.0, abs=0.02)
    assert any(
        "0.650 at 10 kJ/mol per atom, after 1200 steps at each: 10 is allowed at the end" in note
        for note in found["notes"]
    )
    assert any("strongest pull, 10 kJ/mol" in doubt and "fitted.pdb" in doubt for doubt in found["doubts"])
    limited = replace(scan, free=[0.65, 0.6], chosen=5.0)
    assert doubts._strength_doubt(limited) == doubts._strength_doubt(None) == []


def test_residues_where_the_map_is_empty_are_named(fitted):
    fit, result = fitted
    density_map = fit.density_map
    away = result.final + np.array([0.0, 0.0, density_map.shape[0] * 1.2])
    data = np.concatenate([density_map.data, np.zeros_like(density_map.data)])
    masked = FlexibleFit.__new__(FlexibleFit)
    longer = replace(density_map, data=data)
    vars(masked).update(vars(fit), density_map=longer, fit_map=FitMap(longer, fit.fit_map.resolution))
    found = summarized(masked, replace(result, final=away))
    assert found["residues"][9]["correlation_final"] is None
    assert found["residues"][9]["correlation_initial"] is not None
    (note,) = (note for note in found["notes"] if "null" in note)
    assert note.startswith("No correlation after the fit") and "A ALA 8" in note
    assert found["fsc_resolution_final"] is None and found["fsc_falls_final"] is False


def test_doubtful_stretches_are_told_of_in_a_sentence_each(fitted, monkeypatch):
    fit, result = fitted
    # The model where it belongs, but for a part of it.
    spoilt = fit.prepared.positions + (fit.reference.positions - fit.prepared.model.positions)[0]
    moved = [atom.index for atom in fit.prepared.topology.atoms() if int(atom.residue.id) in range(9, 15)]
    spoilt[moved] += np.array([0.0, 4.0, 4.0])
    found = summarized(fit, replace(result, final=spoilt))
    named = [doubt for doubt in found["doubts"] if doubt.startswith("residue") and "fit the map" in doubt]
    assert 1 <= len(named) <= stretches.MOST_STRETCHES
    assert "worse than before" in named[0]
    for module in (doubts, stretches):
        monkeypatch.setattr(module, "MOST_STRETCHES", 0)
    found = summarized(fit, replace(result, final=spoilt))
    (said,) = (doubt for doubt in found["doubts"] if "more stretch" in doubt)
    assert "of residues fit" in said and said.endswith(".") and " the map badly: A " in said

    # Where it is: the residues that were moved, and the centre of what was fitted.
    *_, doubt = (each for each in found["located_doubts"] if each["kind"] == "stretch")
    rows = [row for place in doubt["places"] for row in place["residues"]]
    numbers = {found["residues"][row]["number"] for row in rows}
    assert numbers & set(range(9, 15)) and numbers <= set(range(6, 18))
    place = doubt["places"][0]
    members = {found["residues"][row]["number"] for row in place["residues"]}
    model = result.prepared.model.topology
    centres = [
        np.mean([result.prepared.input_positions(spoilt)[atom.index] for atom in each.atoms()], axis=0)
        for each in model.residues()
        if int(each.id) in members
    ]
    np.testing.assert_allclose(place["centre"], np.mean(centres, axis=0), atol=2e-3)


def geometry(bond, angle, rotamers=0, ramachandran=0, clashes=0, beyond=()):
    return {
        "bond_rmsz": bond,
        "worst_bond_atoms": "A LEU 5 CA - A LEU 5 CB",
        "angle_rmsz": angle,
        "worst_angle_atoms": "A GLY 6 N - A GLY 6 CA - A GLY 6 C",
        "rotamer_outlier_count": rotamers,
        "rotamer_count": 434,
        "ramachandran_outlier_count": ramachandran,
        "ramachandran_count": 566,
        "clash_count": clashes,
        "atom_count": 4580,
        "z_outliers": list(beyond),
    }


def fit_of(**changes):
    ended = {
        "strength": 180.0,
        "final_strength": 180.0,
        "final_search": None,
        "steps": 300,
        "interrupted": False,
        "unfinished": None,
        "simulated": None,
        "amplitude_weight": None,
    }
    ended |= {"cc_final": 0.8, "cc_reference": None}
    return SimpleNamespace(**(ended | changes))


@pytest.mark.parametrize(
    ("relaxed", "after", "named"),
    [
        # EMD-3488 and adenylate kinase.
        (
            geometry(0.93, 1.20, 7),
            geometry(1.33, 1.83, 24, 1),
            "bond RMSZ 0.93 to 1.33, angle RMSZ 1.20 to 1.83, rotamer outliers 7 to 24",
        ),
        (geometry(1.2, 1.34, 10), geometry(0.4, 1.4, 0, 1), None),
        (geometry(1.2, 1.3), geometry(0.4, 0.6, 9, 6, 23), None),
        (geometry(1.2, 1.3), geometry(0.4, 0.6, beyond=["A GLY 6 N - A GLY 6 CA"]), None),
        (
            geometry(1.2, 1.3),
            geometry(0.4, 0.6, beyond=[f"A GLY {k} N - A GLY {k} CA" for k in range(1, 7)]),
            "6 bonds and angles newly beyond 5 standard deviations",
        ),
        (
            geometry(1.2, 1.3),
            geometry(0.4, 0.6, 10, 7, 24),
            "Ramachandran outliers 0 to 7, rotamer outliers 0 to 10, clashes 0 to 24",
        ),
        (geometry(None, None, None, None, 0), geometry(None, None, None, None, 0), None),
    ],
)
def test_what_the_pull_made_clearly_worse_is_doubted(relaxed, after, named):
    summary = {"geometry_relaxed": relaxed, "geometry_final": after}
    found = doubts._geometry_doubt(fit_of(), summary, None)
    if named is None:
        assert found == []
        return
    (doubt,) = (with_arguments(doubt.sentence, {}) for doubt in found)
    assert f"({named});" in doubt and "180 kJ/mol per atom" in doubt and "lower strength" in doubt
    assert "lower --strength" in with_arguments(found[0].sentence, {"strength": "--strength"})
    worst = [place.label for place in found[0].places if place.label.startswith("worst")]
    assert len(worst) == named.count("RMSZ")

    def said(scan=None, **changes):
        (doubt,) = doubts._geometry_doubt(fit_of(**changes), summary, scan)
        return doubt.sentence

    assert "300 steps" in doubt and "steps" not in said(steps=20000)
    assert "without half maps" in said(StrengthScan([5.0], [0.7], [0.6], 5.0))
    assert "strong" not in said(interrupted=True)
    assert doubts._geometry_doubt(fit_of(strength=0.0), summary, None) == []
    searched = fit_of(final_strength=90.0, final_search={"chosen": 90.0})
    (doubt,) = doubts._geometry_doubt(searched, summary, None)
    assert "pull of 90 kJ/mol" in doubt.sentence
    assert "lower --final-strength" in with_arguments(doubt.sentence, {"final_strength": "--final-strength"})


def test_amplitudes_may_pull_bonds_further_than_a_map():
    refined = fit_of(amplitude_weight=3.0)

    def found(after):
        summary = {"geometry_relaxed": geometry(1.2, 1.3), "geometry_final": after}
        return doubts._geometry_doubt(refined, summary, None)

    assert found(geometry(2.0, 1.6)) == []  # 1G8A as it was deposited, with data to 1.23 Å
    (doubt,) = found(geometry(2.5, 1.6))
    assert "bond RMSZ 1.20 to 2.50" in doubt.sentence and "amplitudes count 3 times" in doubt.sentence
    assert "strength" not in doubt.sentence and "steps" not in doubt.sentence


def test_a_better_correlation_than_a_reference_nearby_has_is_doubted():
    fine = {
        "q_score_final": 0.61,
        "q_score_reference": 0.6,
        "fsc_resolution_final": 4.1,
        "fsc_resolution_reference": 4.2,
    }
    summary = {"ca_rmsd_of": {"atoms": ["CA"], "matched": 40, "residues": 41}} | fine
    better = fit_of(cc_final=0.819, cc_reference=0.802, ca_rmsd_final=0.6)
    (doubt,) = doubts._noise_doubt(better, summary, None)
    assert "0.819, reference 0.802" in doubt.sentence
    assert "--half-map" in with_arguments(doubt.sentence, {"half_maps": "--half-map"})
    scan = StrengthScan([5.0], [0.7], [0.6], 5.0)
    assert "free" in doubts._noise_doubt(better, summary, scan)[0].sentence
    for changed in ({"cc_reference": 0.815}, {"cc_reference": None}, {"ca_rmsd_final": 2.0}):
        assert doubts._noise_doubt(SimpleNamespace(**{**vars(better), **changed}), summary, None) == []
    for of in (None, {"atoms": ["CA"], "matched": 20, "residues": 41}):
        assert doubts._noise_doubt(better, fine | {"ca_rmsd_of": of}, None) == []
    # At any distance, where what tells of detail is worse.
    coarse = {"q_score_final": 0.217, "q_score_reference": 0.249, "fsc_resolution_final": 6.17}
    far = SimpleNamespace(**{**vars(better), "ca_rmsd_final": 8.0})
    (doubt,) = doubts._noise_doubt(far, summary | coarse, None)
    assert "but Q (0.217, reference 0.249) and FSC 0.5 (6.17 Å, reference 4.20 Å) are worse" in doubt.sentence
    assert doubts._noise_doubt(far, summary | coarse | {"fsc_resolution_reference": None}, None) == []


def test_a_strength_at_its_limit_is_told_of_where_it_is_the_end_and_was_not_found():
    automatic = SimpleNamespace(protocol=SimpleNamespace(strength="auto"))
    found = {"chosen": 200.0, "most": 200.0, "limited_by": []}
    (note,) = notes._strength_note(automatic, fit_of(strength=200.0))
    assert "limit of 200 kJ/mol" in note
    assert notes._strength_note(automatic, fit_of(strength=200.0, final_search=found)) == []
    spoilt = found | {"chosen": LEAST, "limited_by": ["angle_rmsz", "clash_count"]}
    (note,) = notes._strength_note(automatic, fit_of(strength=200.0, final_search=spoilt))
    assert note.startswith(f"Even at {LEAST:g} kJ/mol") and "angles, clashes" in note


@pytest.mark.parametrize(
    ("falls", "resolution", "said"),
    [
        (True, 4.0, None),
        (None, None, None),  # as an earlier version has it
        (False, 2.1, "agree up to the finest shell of their voxels, 2.10 Å"),
        (False, None, "agree nowhere around the model"),
    ],
)
def test_half_maps_that_are_not_independent_are_doubted(falls, resolution, said):
    scan = StrengthScan([5.0, 10.0], [0.5, 0.6], [0.5, 0.5], 5.0, fsc_falls=falls, fsc_resolution=resolution)
    found = _half_map_doubt(scan)
    assert found == [] if said is None else said in found[0].sentence and found[0].kind == "half_maps"
    assert _half_map_doubt(None) == []


def test_opened_base_pairs_new_pucker_outliers_and_changed_sugars_are_doubts_with_their_places():
    summary = {
        "geometry_initial": {
            "pucker_outliers": ["A A 1"],
            "suite_outliers": ["A U 3", "A U 4"],
            "pyranose_outliers": ["A BMA 3"],
        },
        "geometry_final": {"pucker_outliers": ["A A 1", "A U 12"], "suite_outliers": ["A U 4", "A U 7"]},
        "base_pairs_lost": ["A DA 6 - B DT 19 (cWW)"],
        # The second one has a usual chair now.
        "pyranose_changes": ["A NAG 1 (4C1 to 3,OB)", "A BMA 3 (E1 to 4C1)"],
    }
    # The zinc is told of already, and the iron has what it lacked.
    summary["metal_changes"] = [
        "A MG 5 (6 to 5: without A HOH 7 O)",
        "A ZN 6 (4 to 3: without A CYS 9 SG)",
        "A HEM 8 FE (4 to 5: with A HIS 10 NE2)",
    ]
    summary["worse_geometry"] = [{"kind": "metal", "atoms": "A CYS 9 SG - A ZN 6 ZN"}]
    puckers, pairs, rings, metals = doubts._chemistry_doubts(summary)
    assert puckers.kind == "puckers" and "outliers of A U 12: look" in puckers.sentence
    assert pairs.kind == "base_pairs" and "A DA 6 - B DT 19 (cWW)" in pairs.sentence
    assert pairs.places[0].members == ("A DA 6", "B DT 19")
    more = summary["geometry_final"] | {"suite_outliers": ["A U 3", "A U 4", "A U 7"]}
    _, suites, *_ = doubts._chemistry_doubts(summary | {"geometry_final": more})
    assert suites.kind == "suites" and "among them A U 7: look" in suites.sentence
    assert rings.kind == "pyranoses" and "sugars: A NAG 1 (4C1 to 3,OB): look" in rings.sentence
    assert rings.places[0].members == ("A NAG 1",)
    assert metals.kind == "metal" and "bind: A MG 5 (6 to 5: without A HOH 7 O): look" in metals.sentence
    del summary["pyranose_changes"][0], summary["metal_changes"][0]
    assert doubts._chemistry_doubts(summary | {"geometry_final": {}, "base_pairs_lost": []}) == []

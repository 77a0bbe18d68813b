"""Stretches that are named as doubtful, on a real map."""

from __future__ import annotations

import re

import numpy as np
import pytest

from openmm_density.validation.model_report import map_report, residue_changes
from openmm_density.validation.stretches import doubtful_stretches

RESOLUTION = 3.64


@pytest.fixture(scope="module")
def good(map5925, emd5925):
    return map_report(emd5925.topology, emd5925.positions, map5925, RESOLUTION)


@pytest.fixture(scope="module")
def spoilt(map5925, emd5925):
    """Return the report of the native model with residues 40 to 46 out of their density."""
    positions = emd5925.positions.copy()
    for residue in emd5925.topology.residues():
        if 40 <= int(residue.id) <= 46:
            positions[[atom.index for atom in residue.atoms()]] += np.array([2.5, -2.5, 0.0])
    return map_report(emd5925.topology, positions, map5925, RESOLUTION)


def test_what_a_fit_spoilt_is_named(good, spoilt):
    rows = residue_changes(good, spoilt, good["residues"])
    worst = doubtful_stretches(rows)[0]
    assert worst.fell and worst.chain == "A" and worst.measure == "correlation"
    numbers = {rows[i]["number"] for i in worst.rows}
    # Their neighbours share voxels with them.
    assert set(range(40, 47)) <= numbers <= set(range(35, 51))
    figures = [
        np.mean([rows[i][f"correlation_{stage}"] for i in worst.rows]) for stage in ("final", "initial")
    ]
    assert str(worst) == (
        f"residues A {worst.first}-{worst.last} fit the map worse than before (correlation {figures[0]:.2f}, "
        f"before {figures[1]:.2f}, reference {figures[1]:.2f})."
    )


def test_a_fall_to_what_the_reference_has_is_not_doubted(good, spoilt):
    fallen = [stretch for stretch in doubtful_stretches(residue_changes(good, spoilt)) if stretch.fell]
    assert fallen
    beside = doubtful_stretches(residue_changes(good, spoilt, spoilt["residues"]))
    assert not any(stretch.fell for stretch in beside)
    # They may still be far below the rest of their chain.
    assert any(set(stretch.rows) & set(fallen[0].rows) for stretch in beside)
    only_q = [
        {**row, "correlation": None if row["q_score"] is None else 2.0, "q_score": -1.0}
        for row in spoilt["residues"]
    ]
    again = [stretch for stretch in doubtful_stretches(residue_changes(good, spoilt, only_q)) if stretch.fell]
    assert {stretch.measure for stretch in again} == {"correlation"}


def test_what_stays_low_is_named_beside_the_median_of_its_chain(spoilt):
    worst = doubtful_stretches(residue_changes(spoilt, spoilt))[0]
    assert not worst.fell and {int(worst.first), int(worst.last)} <= set(range(35, 51))
    values = [row["correlation"] for row in spoilt["residues"]]
    assert worst.other == pytest.approx(np.median(values))
    assert worst.reference is None
    assert re.fullmatch(
        r"residues A \d+-\d+ fit the map far worse than the rest of the chain \(correlation 0\.\d\d, median 0\.\d\d\)\.",
        str(worst),
    )


def test_gaps_unknown_values_and_what_is_no_polymer(good, spoilt):
    rows = residue_changes(good, spoilt)
    apart = [dict(row, number=10 * row["number"]) for row in rows]
    assert doubtful_stretches(apart) == []
    ligands = [dict(row, kind="other") for row in rows]
    assert doubtful_stretches(ligands) == []
    unknown = [
        dict(row, correlation_final=None, q_score_final=None) if 30 <= row["number"] <= 50 else row
        for row in rows
    ]
    assert doubtful_stretches(unknown) == []

"""The final strength: the largest at which the geometry stays within bounds."""

import math
from dataclasses import replace

import pytest

from openmm_density.fitting.final_strength import (
    GOOD_ANGLE_RMSD,
    GOOD_BOND_RMSD,
    LEAST,
    MOST_ANGLE_RMSD,
    NEAR_ENOUGH,
    GeometryBounds,
    StrengthTrial,
    find_final_strength,
)

from ..fragments import fragment

BOUNDS = GeometryBounds(bond_rmsd=0.018, angle_rmsd=2.75, clash_count=4, ramachandran_outlier_count=1)


def geometry(angles=lambda k: 2.5, outliers=lambda k: 0, bonds=lambda k: 0.015, clashes=lambda k: 0):
    """Return a measure of a model whose geometry is a function of the strength, and the strengths that were asked for."""
    asked = []

    def measure(strength):
        asked.append(strength)
        return StrengthTrial(
            strength, bonds(strength), angles(strength), clashes(strength), outliers(strength)
        )

    return measure, asked


@pytest.mark.parametrize("limit", [6.0, 17.0, 60.0, 199.0])
def test_the_largest_strength_within_bounds_is_found_to_a_sixth(limit):
    measure, asked = geometry(angles=lambda k: 2.75 * (k / limit) ** 0.1)
    found = find_final_strength(measure, BOUNDS, 200.0)
    assert limit / NEAR_ENOUGH <= found.chosen <= limit
    assert found.limited_by == ["angle_rmsd"] and found.most == 200.0
    assert asked == [trial.strength for trial in found.trials] and asked[0] == 200.0
    assert len(asked) <= 5 and found.chosen in asked


def test_a_geometry_that_bears_it_keeps_the_full_strength_after_one_trial():
    measure, asked = geometry()
    found = find_final_strength(measure, BOUNDS, 137.0)
    assert found.chosen == 137.0 and found.limited_by == [] and asked == [137.0]


def test_a_geometry_that_bears_nothing_has_the_least_strength():
    measure, asked = geometry(angles=lambda k: 3.0, bonds=lambda k: 0.02)
    found = find_final_strength(measure, BOUNDS, 200.0)
    assert found.chosen == asked[-1] == LEAST and len(asked) <= 4
    assert found.limited_by == ["bond_rmsd", "angle_rmsd"]


def test_what_is_unstable_at_all_strengths_is_tried_at_the_least_one_at_once():
    asked = []
    found = find_final_strength(lambda k: asked.append(k) or StrengthTrial.of(k, None), BOUNDS, 200.0)
    assert asked == [200.0, LEAST] and found.chosen == LEAST


def test_bounds_are_those_of_the_relaxed_model_and_the_noise_of_counts(tmp_path):
    from openmm_density.validation.geometry import geometry_report

    model = fragment(tmp_path / "model.pdb", residues=24)
    report = geometry_report(model.topology, model.positions)
    bounds = GeometryBounds.of_relaxed(replace(report, ramachandran_outlier_count=9))
    assert bounds.angle_rmsd == max(MOST_ANGLE_RMSD * report.angle_rmsd, GOOD_ANGLE_RMSD)
    assert bounds.ramachandran_outlier_count == 12 + 1
    # One that ideal geometry relaxed may have what the force field leaves.
    ideal = GeometryBounds.of_relaxed(replace(report, bond_rmsd=0.008, angle_rmsd=1.9))
    assert (ideal.bond_rmsd, ideal.angle_rmsd) == (GOOD_BOND_RMSD, GOOD_ANGLE_RMSD)
    none = replace(report, ramachandran_outlier_count=0)
    assert GeometryBounds.of_relaxed(none).ramachandran_outlier_count == 1
    # Without Ramachandran tables, and without bonds that have an ideal length, these set no bound.
    bounds = GeometryBounds.of_relaxed(replace(report, ramachandran_outlier_count=None, bond_rmsd=math.nan))
    trial = StrengthTrial(5.0, math.nan, report.angle_rmsd, 0, None)
    assert bounds.exceeded_by(trial) == []

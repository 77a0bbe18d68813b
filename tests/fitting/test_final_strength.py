"""The final strength: the largest at which the geometry stays within bounds."""

import math
from dataclasses import replace

import pytest

from openmm_density.fitting.final_strength import (
    LEAST,
    MOST_ANGLE_RMSZ,
    MOST_BOND_RMSZ,
    MOST_STIFFER,
    NEAR_ENOUGH,
    STIFFER_BY,
    GeometryBounds,
    StrengthTrial,
    find_final_strength,
    stiffer,
)

from ..fragments import fragment

BOUNDS = GeometryBounds(0.5, 0.7, clash_count=4, ramachandran_outlier_count=1, rotamer_outlier_count=2)


def geometry(angles=lambda k: 0.6, outliers=lambda k: 0, bonds=lambda k: 0.3, clashes=lambda k: 0):
    """Return a measure of a model whose geometry is a function of the strength, and the strengths that were asked for."""
    asked = []

    def measure(strength):
        asked.append(strength)
        return StrengthTrial(
            strength, bonds(strength), angles(strength), clashes(strength), outliers(strength), 0
        )

    return measure, asked


@pytest.mark.parametrize("limit", [6.0, 17.0, 60.0, 199.0])
def test_the_largest_strength_within_bounds_is_found_nearly(limit):
    measure, asked = geometry(angles=lambda k: 0.7 * (k / limit) ** 0.1)
    found = find_final_strength(measure, BOUNDS, 200.0)
    assert limit / NEAR_ENOUGH <= found.chosen <= limit
    assert found.limited_by == ["angle_rmsz"] and found.most == 200.0
    assert asked == [trial.strength for trial in found.trials] and asked[0] == 200.0
    assert len(asked) <= 5 and found.chosen in asked


def test_a_geometry_that_bears_it_keeps_the_full_strength_after_one_trial():
    measure, asked = geometry()
    found = find_final_strength(measure, BOUNDS, 137.0)
    assert found.chosen == 137.0 and found.limited_by == [] and asked == [137.0]


def test_a_geometry_that_no_pull_makes_worse_keeps_the_full_strength():
    """Residues that are never ideal, say, are no reason to let go of the map."""
    measure, asked = geometry(angles=lambda k: 0.8, bonds=lambda k: 0.6)
    found = find_final_strength(measure, BOUNDS, 200.0)
    assert found.chosen == 200.0 and asked[-1] == LEAST and len(asked) <= 4
    assert found.limited_by == [] and found.bounds.angle_rmsz == pytest.approx(1.1 * 0.8)


@pytest.mark.parametrize("limit", [17.0, 60.0])
def test_of_a_geometry_that_is_never_ideal_a_little_more_is_borne(limit):
    measure, asked = geometry(angles=lambda k: 0.9 if k <= limit else 0.9 * (k / limit) ** 0.5)
    found = find_final_strength(measure, BOUNDS, 200.0)
    assert limit / NEAR_ENOUGH**2 <= found.chosen <= 1.25 * limit
    assert found.limited_by == ["angle_rmsz"] and len(asked) <= 9


def test_a_bound_on_a_count_that_no_pull_meets_does_not_let_go_of_the_map():
    """Clashes that the weakest pull has, or one more or less, are no reason for a weak one."""
    measure, asked = geometry(clashes=lambda k: {5.0: 4}.get(k, 6 if k < 220.0 else 12))
    found = find_final_strength(measure, BOUNDS, 400.0)
    assert 100.0 < found.chosen < 220.0 and found.limited_by == ["clash_count"] and len(asked) <= 6
    assert found.bounds.clash_count == 4 + 2


def test_angles_that_are_strained_without_a_pull_do_not_let_go_of_the_map():
    """Those of EMD-5925 (1): near their bound at the least strength, while bonds and clashes exceed theirs at the largest."""
    measure, asked = geometry(
        bonds=lambda k: 0.5135 * (k / 400.0) ** 0.12,
        angles=lambda k: 0.698 if k < 10.0 else 0.663,
        clashes=lambda k: int(k / 40.0),
    )
    found = find_final_strength(measure, replace(BOUNDS, clash_count=8), 400.0)
    assert 360.0 / NEAR_ENOUGH <= found.chosen < 400.0 and len(asked) <= 4


def test_a_geometry_that_bears_nothing_has_the_least_strength():
    measure, _asked = geometry(angles=lambda k: 0.8 if k <= LEAST else 1.2)
    found = find_final_strength(measure, BOUNDS, 200.0)
    assert found.chosen <= NEAR_ENOUGH * LEAST and found.limited_by == ["angle_rmsz"]


def test_what_is_unstable_at_all_strengths_is_tried_at_the_least_one_at_once():
    asked = []
    found = find_final_strength(lambda k: asked.append(k) or StrengthTrial.of(k, None), BOUNDS, 200.0)
    assert asked == [200.0, LEAST] and found.chosen == LEAST


def test_bounds_are_those_of_ideal_geometry_of_the_relaxed_model_and_the_noise_of_counts(tmp_path):
    from openmm_density.validation.geometry import geometry_report

    model = fragment(tmp_path / "model.pdb", residues=24)
    report = geometry_report(model.topology, model.positions)
    bounds = GeometryBounds.of_relaxed(
        replace(report, ramachandran_outlier_count=9, clash_count=2, rotamer_outlier_count=0)
    )
    assert (bounds.bond_rmsz, bounds.angle_rmsz) == (MOST_BOND_RMSZ, MOST_ANGLE_RMSZ)
    assert bounds.ramachandran_outlier_count == 12 + 1 and bounds.rotamer_outlier_count == 1
    assert bounds.clash_count == 2 + 1 + math.ceil(report.atom_count / 200)
    none = replace(report, ramachandran_outlier_count=0)
    assert GeometryBounds.of_relaxed(none).ramachandran_outlier_count == 1
    # Without Ramachandran tables, and without bonds that have an ideal length, these set no bound.
    trial = StrengthTrial(5.0, math.nan, 0.6, 0, None, 0)
    assert bounds.exceeded_by(trial) == [] and stiffer(trial) == (1.0, 1.0)


def test_what_is_beyond_ideal_geometry_is_held_more_stiffly_by_as_much():
    within = StrengthTrial(50.0, MOST_BOND_RMSZ, MOST_ANGLE_RMSZ, 9, 9, 9)
    assert stiffer(within) == (1.0, 1.0)
    # Bonds and angles each by their own.
    bonds, angles = stiffer(replace(within, bond_rmsz=0.55, angle_rmsz=0.91))
    assert 0.9 < 1.1 / bonds ** (1 / STIFFER_BY) < 1.0 and 0.9 < 1.3 / angles ** (1 / STIFFER_BY) < 1.0
    assert stiffer(replace(within, angle_rmsz=7.0)) == (1.0, MOST_STIFFER)

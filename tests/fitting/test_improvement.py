"""Whether a fit made a model better."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openmm_density.fitting.improvement import clearly_better, why_not_better
from openmm_density.validation.geometry import GeometryReport, geometry_report

from ..fragments import fragment

NOISE = 0.01
"""The standard error of the CC of a model of about 90 residues at 3.6 Å."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> GeometryReport:
    model = fragment(tmp_path_factory.mktemp("model") / "model.pdb", residues=40)
    return geometry_report(model.topology, model.positions)


def test_a_lower_correlation_is_no_improvement(good: GeometryReport) -> None:
    assert why_not_better(0.860, 0.847, good, good, NOISE) == (
        "CC 0.860 before and 0.847 after, with a geometry that is not clearly better"
    )
    # Another force field has other ideal values, and fewer deviations from its own.
    usual = replace(good, bond_rmsd=0.024, angle_rmsd=3.1)
    assert (
        why_not_better(0.860, 0.847, usual, replace(usual, bond_rmsd=0.012, angle_rmsd=2.2), NOISE)
        is not None
    )
    assert why_not_better(0.860, float("nan"), good, good, NOISE) is not None


def test_fewer_of_a_few_outliers_are_no_sign_of_a_better_model(good: GeometryReport) -> None:
    """1G8A as deposited, and what restraints and repulsion leave of any model."""
    counted = {"atom_count": 2232, "rotamer_count": 185, "ramachandran_count": 220}
    none_left = replace(
        good, **counted, bond_rmsd=0.013, clash_count=0, rotamer_outlier_count=0, ramachandran_outlier_count=0
    )
    deposited = replace(
        none_left, bond_rmsd=0.024, clash_count=42, rotamer_outlier_count=12, ramachandran_outlier_count=6
    )
    assert why_not_better(0.860, 0.847, deposited, none_left, NOISE) is not None


def test_a_correlation_that_differs_by_noise_is_none_either(good: GeometryReport) -> None:
    assert why_not_better(0.860, 0.859, good, good, NOISE) is None
    assert why_not_better(0.860, 0.862, good, good, NOISE) is None
    assert why_not_better(0.5, 0.9, good, good, NOISE) is None


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"bond_rmsd": 0.034}, "strain of bonds"),
        ({"angle_rmsd": 4.4}, "strain of angles"),
        ({"clash_count": 40}, "clashes"),
        ({"ramachandran_outlier_count": 9}, "Ramachandran outliers"),
        ({"rotamer_outlier_count": 12}, "rotamer outliers"),
        ({"twisted_count": 5}, "twisted peptides"),
        ({"wrong_alpha_count": 1}, "centres of the wrong handedness"),
    ],
)
def test_a_geometry_that_was_bad_outweighs_a_little_correlation(
    good: GeometryReport, wrong: dict[str, float], name: str
) -> None:
    good = replace(
        good,
        bond_rmsd=0.014,
        angle_rmsd=2.3,
        rotamer_outlier_count=1,
        ramachandran_outlier_count=0,
        clash_count=0,
    )
    bad = replace(good, **wrong)
    assert clearly_better(good, bad) == [name] and clearly_better(bad, good) == []
    assert why_not_better(0.600, 0.590, bad, good, NOISE) is None
    # And one that became bad is not made up for by nothing.
    assert (
        why_not_better(0.600, 0.601, good, bad, NOISE)
        == f"CC 0.600 before and 0.601 after, with clearly more {name}"
    )
    assert why_not_better(0.600, 0.650, good, bad, NOISE) is None


def test_no_geometry_makes_up_for_a_correlation_that_fell_beyond_its_noise(good: GeometryReport) -> None:
    bad = replace(good, angle_rmsd=4.4, wrong_alpha_count=3)
    assert why_not_better(0.937, 0.671, bad, good, 0.008) == (
        "CC 0.937 before and 0.671 after, which is more than noise (±0.008)"
    )
    assert why_not_better(0.999, 0.980, bad, good, 0.0001) is not None
    assert why_not_better(0.860, 0.841, bad, good, 0.01) is None


def test_what_was_not_counted_tells_nothing(good: GeometryReport) -> None:
    unknown = replace(good, ramachandran_outlier_count=None, ramachandran_count=None)
    assert clearly_better(unknown, unknown) == []

"""Whether a fit made a model better: by its correlation with the map, and by its geometry."""

from __future__ import annotations

import math

from ..validation.geometry import GeometryReport

CC_TOLERANCE = 0.002
"""A difference in correlation (CC mask) that says nothing."""
BEYOND_NOISE = 2.0
"""Standard errors of a correlation by which it has to fall for no geometry to make up for it."""
BAD_BONDS, BAD_ANGLES = 0.03, 3.5
"""RMSD of bonds (Å) and angles (degrees) from Amber's ideal values from which on a smaller one is better. Deposited models have
other ideal values and up to 0.024 Å and 3.1° from these; models traced by programs 0.034 Å and 4.3°."""
CLEARLY_LESS = 1.2
"""Times by which such an RMSD has to be smaller."""
BAD_SHARES = {"ramachandran_outlier": 0.05, "rotamer_outlier": 0.1, "clash": 0.08, "twisted": 0.015}
"""Of what was counted, the share of outliers of a kind from which on fewer are better: any fit leaves few, as it holds what it is
judged by, and that is no sign of a better model. Deposited models have up to 0.03, 0.07, 0.06 and 0."""
CLEARLY_FEWER = 3
"""Outliers of one kind by which a model has to have fewer."""
BORNE_SHARES = {"ramachandran_outlier": 0.01, "rotamer_outlier": 0.02, "clash": 0.005}
"""Of what was counted, the share of outliers by which a fitted model may have more than the relaxed one: its final strength is
chosen for that, and no doubt is said of it. Of clashes, for each heavy atom: a clashscore of about 2.5."""


def most_borne(kind: str, count: int | None, counted: int | None) -> int:
    """Return the most outliers of a kind that are tolerated where the relaxed model has so many, as counts vary by their root."""
    return (count or 0) + math.isqrt(count or 0) + math.ceil(BORNE_SHARES[kind] * (counted or 0))


def why_not_better(
    cc_before: float, cc_after: float, before: GeometryReport, after: GeometryReport, noise: float
) -> str | None:
    """Return a few words on why a model after a fit is not better than before it; None where it is.

    It is not where its correlation fell beyond its noise, nor where it fell less and its geometry is not clearly better, nor
    where its correlation is the same and its geometry clearly worse. No reference has a part in this. As in ``CC 0.860 before
    and 0.847 after, with a geometry that is not clearly better``.
    """
    correlations = f"CC {cc_before:.3f} before and {cc_after:.3f} after"
    if not cc_after >= cc_before - CC_TOLERANCE:
        if not clearly_better(after, before):
            return f"{correlations}, with a geometry that is not clearly better"
        if not cc_after >= cc_before - max(BEYOND_NOISE * noise, CC_TOLERANCE):
            return f"{correlations}, which is more than noise (±{noise:.3f})"
    elif not cc_after > cc_before + CC_TOLERANCE:
        worse = clearly_better(before, after)
        if worse:
            return f"{correlations}, with clearly more {' and '.join(worse)}"
    return None


def clearly_better(one: GeometryReport, other: GeometryReport) -> list[str]:
    """Name what is clearly less wrong in one model than in another of the same atoms."""
    found = []
    for name, limit, mine, its in (
        ("strain of bonds", BAD_BONDS, one.bond_rmsd, other.bond_rmsd),
        ("strain of angles", BAD_ANGLES, one.angle_rmsd, other.angle_rmsd),
    ):
        if its > limit and its > CLEARLY_LESS * mine:
            found.append(name)
    for name, key, counted in (
        ("Ramachandran outliers", "ramachandran_outlier", one.ramachandran_count),
        ("rotamer outliers", "rotamer_outlier", one.rotamer_count),
        ("clashes", "clash", one.atom_count),
        ("twisted peptides", "twisted", len(one.peptides)),
    ):
        mine, its = (getattr(each, f"{key}_count") for each in (one, other))
        if None not in (mine, its) and its > BAD_SHARES[key] * counted and its - mine > CLEARLY_FEWER:
            found.append(name)
    wrong = (
        one.wrong_alpha_count + one.wrong_centre_count,
        other.wrong_alpha_count + other.wrong_centre_count,
    )
    if wrong[0] < wrong[1]:
        found.append("centres of the wrong handedness")
    return found

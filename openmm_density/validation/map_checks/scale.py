"""Whether the voxel size is right: a rigid model fits best where it is as large as its image in the map."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize

from ...base.errors import InputError, as_argument
from ...maps.density_map import DensityMap
from ..correlation import MapCorrelation
from .detail import FACTOR
from .findings import Finding, MapChecks
from .rigid_scan import SCALES, Pose, RigidScan
from .subject import Subject

CHECK = "voxel_size"

# What a right map of shared and simulated data never has together, and what one that is 3% off does: the model fits, as much
# better with another scale as this part of what the correlation lacks of 1, by this much, and the scale is this far from 1.
# De novo models with 5% of their residues out of place gain 0.056 of the lack; the same in a map that is 3% off, 0.08 and more.
LEAST_CORRELATION = 0.45
LEAST_GAIN, LEAST_PART_GAINED = 0.015, 0.07
LEAST_ERROR = 0.01
# A model that has less is not where it belongs, and no scale makes it fit.
HOPELESS = 0.25
# From this resolution (Å) on the band in which the scan compares still holds some of the envelope, and makes models smaller,
# by 1% at 5 Å and 2.3% at 8 Å: the correlation decides, this far around what the scan finds.
BLURRED = 4.5
REACH = {False: 0.02, True: 0.05}
# A resolution that is said to be finer is by this factor at least: voxels hold none that is finer than two of them.
LEAST_FINER = 0.8
_TOLERANCE, _ITERATIONS = 0.003, 15
# Fewer atoms say little: a helix may be stretched.
LEAST_ATOMS = 100


def check_voxel_size(subject: Subject) -> MapChecks:
    """Return whether the model fits better at another voxel size, after a small rigid adjustment.

    Returns ``scale`` (of the model in the map, the best; 1 where the voxel size is right), ``cc`` and ``cc_scaled``
    (correlation of the rigid model where it fits best, as it is and scaled; None where the scale is near 1) and
    ``voxel_size`` (Å, with which the scale would be 1).
    """
    if subject.is_heavy.sum() < LEAST_ATOMS or subject.cc < HOPELESS:
        return MapChecks({CHECK: None})
    density_map, correlation = subject.density_map, subject.correlation
    try:
        scan = RigidScan(density_map, subject.heavy, subject.weights, subject.resolution)
    except InputError:  # the model is not in the map
        return MapChecks({CHECK: None})
    one, best = scan.best()
    blurred = subject.resolution >= BLURRED
    if not blurred and abs(best.scale - 1) < LEAST_ERROR:
        figures = {
            "scale": best.scale,
            "cc": None,
            "cc_scaled": None,
            "voxel_size": _right(density_map, best.scale),
        }
        return MapChecks({CHECK: figures})
    cc = correlation.cc_mask(scan.moved(subject.positions, one))
    scale, cc_scaled = _best_scale(subject, scan, one, best.scale, REACH[blurred])
    if cc_scaled < cc:
        scale, cc_scaled = 1.0, cc
    sizes = _right(density_map, scale)
    figures = {"scale": scale, "cc": cc, "cc_scaled": cc_scaled, "voxel_size": sizes}
    gain = cc_scaled - cc
    wrong = cc_scaled >= LEAST_CORRELATION and gain >= max(LEAST_GAIN, LEAST_PART_GAINED * (1 - cc))
    if not wrong:
        return MapChecks({CHECK: figures})
    return MapChecks({CHECK: figures}, [_finding(subject, figures, scan.moved(subject.positions, one))])


def _finding(subject: Subject, figures: dict[str, Any], placed: np.ndarray) -> Finding:
    """Return what is wrong with a map whose model (N, 3), where it fits best as it is, fits better at another scale.

    Between the atoms of a map that shows more detail than the resolution that was given is less density than it is expected
    to have, and a larger model has less there too. So the resolution comes first where the model, as large as it is, fits a
    finer one no worse, as it does not where the resolution is right; and it is named where such a larger model fits best.
    """
    given, cc, density_map = subject.resolution, figures["cc"], subject.density_map
    percent = 100 * (figures["scale"] - 1)
    how = f"{abs(percent):.1f}% {'larger' if percent > 0 else 'smaller'}"
    measured = (
        f"voxels measured {_sizes(figures['voxel_size'])} Å in place of {_sizes(density_map.voxel_size)}"
    )
    correction = _correction(figures["voxel_size"])
    finer = max(given / FACTOR, 2 * float(density_map.voxel_size.max()))
    finer_cc = None if finer > LEAST_FINER * given else _correlation_at(subject, finer, placed)
    if finer_cc is not None and finer_cc >= cc:
        return Finding(
            CHECK,
            f"the resolution of {given:g} Å looks too coarse, or else the voxel size wrong: the rigid model fits as well at "
            f"{finer:.1f} Å (CC {finer_cc:.3f}, at {given:g} Å {cc:.3f}), and at {given:g} Å better if it is {how} (CC "
            f"{figures['cc_scaled']:.3f}), as if the {measured}",
            remedy=f"check {as_argument('resolution')} first, then the map's header, and pass {correction} if that is wrong",
        )
    also = f"; check {as_argument('resolution')} too: at one that is too coarse a larger model fits better"
    return Finding(
        CHECK,
        f"the voxel size looks wrong by {abs(percent):.1f}%: the rigid model fits best if it is {how} (CC {cc:.3f} to "
        f"{figures['cc_scaled']:.3f}), as if the {measured}",
        remedy=f"check the map's header, and pass {correction} if so{also if percent > 0 and given >= BLURRED else ''}",
    )


def _correlation_at(subject: Subject, resolution: float, positions: np.ndarray) -> float:
    """Return the correlation (CC mask) of the model at positions (N, 3) with the map at another resolution."""
    return MapCorrelation(subject.density_map, subject.topology, resolution).cc_mask(positions)


def _best_scale(
    subject: Subject, scan: RigidScan, one: Pose, near: float, reach: float
) -> tuple[float, float]:
    """Return the scale, within reach of one, at which the correlation (CC mask) is highest, and that."""

    def lack(scale: float) -> float:
        pose = scan.refined(one._replace(scale=float(scale)), fixed_scale=True, iterations=_ITERATIONS)
        return 1 - subject.correlation.cc_mask(scan.moved(subject.positions, pose))

    bounds = (max(near - reach, SCALES[0]), min(near + reach, SCALES[1]))
    found = optimize.minimize_scalar(lack, bounds=bounds, method="bounded", options={"xatol": _TOLERANCE})
    return float(found.x), float(1 - found.fun)


def _right(density_map: DensityMap, scale: float) -> list[float]:
    """Return the voxel sizes in Å with which the best scale would be 1."""
    return [float(size) for size in density_map.voxel_size / scale]


def _correction(sizes: list[float]) -> str:
    """Return the argument that corrects a map to three voxel sizes in Å."""
    written = _sizes(sizes, ",")
    return (
        f"{as_argument('voxel_size')} {written}"
        if "," in written
        else as_argument("voxel_size", float(written))
    )


def _sizes(sizes: Any, between: str = " × ") -> str:
    """Write three voxel sizes, or one where they are the same."""
    alike = max(sizes) < 1.001 * min(sizes)
    return f"{np.mean(sizes):.4g}" if alike else between.join(f"{size:.4g}" for size in sizes)

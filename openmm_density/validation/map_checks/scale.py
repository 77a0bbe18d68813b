"""Whether the voxel size is right: a rigid model fits best where it is as large as its image in the map."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize

from ...errors import InputError, as_argument
from ...maps.density_map import DensityMap
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
_TOLERANCE, _ITERATIONS = 0.003, 15
# Fewer atoms say little: a helix may be stretched.
LEAST_ATOMS = 100


def check_scale(subject: Subject) -> MapChecks:
    """Return whether the model fits better at another voxel size, after a small rigid adjustment.

    Parameters
    ----------
    subject : Subject

    Returns
    -------
    MapChecks
        ``scale`` (of the model in the map, the best; 1 where the voxel size is right), ``cc`` and ``cc_scaled`` (correlation
        of the rigid model where it fits best, as it is and scaled; None where the scale is near 1) and ``voxel_size`` (Å,
        with which the scale would be 1).
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
    percent = 100 * (scale - 1)
    wrong_size = Finding(
        CHECK,
        f"the voxel size looks wrong by {abs(percent):.1f}%: the rigid model fits best if it is {abs(percent):.1f}% "
        f"{'larger' if percent > 0 else 'smaller'} (CC {cc:.3f} to {cc_scaled:.3f}), as if the voxels measured "
        f"{_sizes(sizes)} Å in place of {_sizes(density_map.voxel_size)}",
        remedy=f"check the map's header, and pass {_correction(sizes)} if so",
    )
    return MapChecks({CHECK: figures}, [wrong_size])


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

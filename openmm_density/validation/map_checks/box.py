"""Whether model and box go together: voxels in nm, a model half a box away, and maps rolled by half of their box."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from ...base.errors import InputError, as_argument
from ...maps.checks import widest_side
from ...maps.density_map import DensityMap
from .coverage import IN_DENSITY, coverage, densest, sampled
from .findings import Finding, MapChecks
from .rigid_scan import RigidScan
from .subject import Subject

CHECK = "box"

# Voxels below this (Å) are finer than any of cryo-EM, and in nm those of all of it.
NM_VOXELS = 0.3
NM_WIDEST = 60.0
# A model that half a box puts into its density: this correlation, and so much more than before.
LEAST_CORRELATION, LEAST_GAIN = 0.35, 0.2
# Part of the atoms that lie in the box where the model as a whole was moved, and not the map rolled.
WHOLE = 0.95
# Of a molecule that is cut in two at the faces of the box: opposite faces correlate, a part of them is as dense as a
# molecule, and hardly any of the planes half a box away is.
LIKE_FACES, DENSE_FACES, EMPTY_MIDDLE = 0.7, 0.02, 0.1


def check_units(density_map: DensityMap, heavy: np.ndarray) -> None:
    """Raise InputError for a map whose voxels are in nm.

    `heavy` (N, 3): positions of the non-hydrogen atoms in Å. Raises InputError if its voxels are too fine for Å, and
    the map too small for the model, which does not lie in its density either.
    """
    sizes, side = density_map.voxel_size, widest_side(density_map)
    extent = float(np.ptp(heavy, axis=0).max()) if len(heavy) else 0.0
    if density_map.periodic or sizes.max() >= NM_VOXELS or side > NM_WIDEST or extent < 1.2 * side:
        return
    if coverage(heavy, density_map) >= IN_DENSITY and np.isfinite(density_map.value_at(heavy)).mean() > 0.5:
        return
    raise InputError(
        f"the voxel size of {sizes.max():.3g} Å looks like nm",
        found=f"a map {side:.3g} Å wide for a model of {extent:.0f} Å",
        remedy=f"give {as_argument('voxel_size', float(f'{10 * sizes.max():.3g}'))}, or correct the map's header",
    )


def check_box(subject: Subject) -> MapChecks:
    """Return whether the model fits once it is moved, or the map is rolled, by half the box.

    Returns ``half_box`` (the axes along which half a box helps, or None), ``shift`` (the move in Å that helps, or
    None), ``rolled`` (whether the map is, and the molecule cut) and ``cc`` (what the model then has, or None where that
    is not known). An error for a rolled map.
    """
    density_map, heavy, cc = subject.density_map, subject.heavy, subject.cc
    nothing = {"half_box": None, "shift": None, "rolled": False, "cc": None}
    if density_map.periodic or cc >= LEAST_CORRELATION:
        return MapChecks({CHECK: nothing})
    best = _best_half(density_map, heavy)
    if best is not None:
        shift = density_map.matrix @ best
        # The box as one period of a crystal: what was rolled over its faces is whole again.
        period = DensityMap(density_map.data, density_map.matrix, density_map.origin, periodic=True)
        elsewhere = replace(subject, density_map=period, positions=subject.positions + shift, known_cc=None)
        scan = RigidScan(period, elsewhere.heavy, subject.weights, subject.resolution)
        moved = replace(elsewhere, positions=scan.moved(elsewhere.positions, scan.best()[0]))
        found = moved.cc
        if found >= max(LEAST_CORRELATION, cc + LEAST_GAIN):
            boxes = _boxes_into(density_map, moved.heavy)
            axes = [name for name, steps in zip("xyz", best) if steps]
            is_cut = _goes_on(density_map, period, moved.heavy + density_map.matrix @ boxes)
            return _found(density_map, best, boxes, axes, is_cut, cc, found)
    rolled = _cut_axes(density_map, len(heavy))
    if rolled and coverage(heavy, density_map) < IN_DENSITY:
        return _found(density_map, None, None, rolled, True, cc, None)
    return MapChecks({CHECK: nothing})


def _found(
    density_map: DensityMap,
    steps: np.ndarray | None,
    boxes: np.ndarray | None,
    axes: list[str],
    rolled: bool,
    cc: float,
    found: float | None,
) -> MapChecks:
    along = ", ".join(axes)
    move = None if rolled or steps is None else density_map.matrix @ (steps + boxes)
    figures = {
        "half_box": axes,
        "shift": None if move is None else move.tolist(),
        "rolled": rolled,
        "cc": found,
    }
    if rolled:
        seen = "what it cuts off at one face going on at the opposite one"
        if found is not None:
            seen = f"CC {cc:.2f} as it is and {found:.2f} rolled back"
        else:
            along += " at least"
        cut = Finding(
            CHECK,
            f"the map is rolled by half its box along {along}, as by another origin of the Fourier transform, which cuts the "
            "molecule in two",
            found=seen,
            remedy="roll it back, for instance by numpy.fft.fftshift, and use that map",
            is_error=True,
        )
        return MapChecks({CHECK: figures}, [cut])
    shift = " ".join(f"{x:+.1f}" for x in move)
    where = "lies outside the map" if boxes.any() else f"is off by half the map's box along {along}"
    moved = Finding(
        CHECK,
        f"the model {where} (CC {cc:.2f} where it is, {found:.2f} moved by {shift} Å)",
        remedy=f"check the map's origin, or let the model be placed by {as_argument('place', 'on')}",
    )
    return MapChecks({CHECK: figures}, [moved])


def _best_half(density_map: DensityMap, heavy: np.ndarray) -> np.ndarray | None:
    """Return by how many voxels along x, y, z, half the box or none, the atoms come into the densest place, or None."""
    size = density_map.size
    index = np.rint(density_map.to_index(heavy)).astype(np.int64)

    def mean_at(steps: np.ndarray) -> float:
        i, j, k = ((index + steps) % size).T
        return float(density_map.data[k, j, i].mean(dtype=np.float64))

    halves = [np.array(each) for each in itertools.product(*((0, int(n) // 2) for n in size))]
    means = {tuple(half): mean_at(half) for half in halves}
    best = max(means, key=lambda half: means[half])
    if not any(best):
        return None
    if means[best] < 0.5 * float(densest(len(heavy), density_map).mean(dtype=np.float64)):
        return None
    # Up or down half a box is the same on a rolled map; a whole model is moved into the box.
    signs = [
        np.array(best) * sign for sign in itertools.product(*(((1, -1) if half else (1,)) for half in best))
    ]
    return max(signs, key=lambda half: int(((index + half >= 0) & (index + half < size)).all(axis=1).sum()))


def _boxes_into(density_map: DensityMap, heavy: np.ndarray) -> np.ndarray:
    """Return by how many voxels along x, y, z, which are whole boxes, most of the atoms come into the box."""
    size = density_map.size
    index = density_map.to_index(heavy)
    near = -np.floor(np.median(index, axis=0) / size)[:, None] + [0, 1, -1]
    inside = (index[:, :, None] + near * size[:, None] + 0.5) / size[:, None]
    most = ((inside >= 0) & (inside < 1)).sum(axis=0).argmax(axis=1)
    return np.take_along_axis(near, most[:, None], axis=1)[:, 0] * size


def _goes_on(density_map: DensityMap, period: DensityMap, heavy: np.ndarray) -> bool:
    """Return whether what lies outside the box of a model, put as far into it as can be, is in density at the opposite faces."""
    outside = ~np.isfinite(density_map.value_at(heavy))
    if outside.mean() <= 1 - WHOLE:
        return False
    values = period.value_at(heavy) - float(sampled(density_map).mean(dtype=np.float64))
    return bool(outside.all() or values[outside].mean() > 0.5 * values[~outside].mean())


def _cut_axes(density_map: DensityMap, n_atoms: int) -> list[str]:
    """Return the axes whose faces cut a molecule that the middle of the box would hold whole."""
    threshold = float(densest(n_atoms, density_map).min())
    cut = []
    for axis, name in ((2, "x"), (1, "y"), (0, "z")):
        planes = np.moveaxis(density_map.data, axis, 0)
        first, last = planes[0].ravel().astype(np.float64), planes[-1].ravel().astype(np.float64)
        if first.std() == 0 or last.std() == 0 or np.corrcoef(first, last)[0, 1] < LIKE_FACES:
            continue
        half = len(planes) // 2
        faces = float(np.mean([plane > threshold for plane in (planes[0], planes[-1])]))
        middle = float((planes[half - 1 : half + 1] > threshold).mean())
        if faces >= DENSE_FACES and middle <= EMPTY_MIDDLE * faces:
            cut.append(name)
    return cut

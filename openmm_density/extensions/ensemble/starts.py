"""Where the replicas of an ensemble begin: the fitted model, the model as it was given, and both ways along soft modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from openmm import app
from scipy.linalg import eigh
from scipy.spatial import cKDTree

from openmm_density.kernels import density as kernel

from ...energies.density_fit import DensityFit
from .states import trace_of

AMPLITUDES = (1.5, 3.0)
"""Å: by how much a model is deformed along a mode, as the RMSD of its trace."""
MODES = 6
"""Softest ones that are tried."""
REACH = 15.0
"""Å between which two residues are joined by a spring."""
_MOST_TRACED = 700
_RIGID = 6


def starting_models(
    fit: DensityFit,
    topology: app.Topology,
    fitted: np.ndarray,
    given: np.ndarray,
    replicas: int,
    placed: Sequence[np.ndarray] = (),
) -> list[np.ndarray]:
    """Return where replicas begin, in Å: no two of them alike, as what begins in one place stays together for long.

    The first are those that were placed, or without any the fitted model. Each further one is that of the `candidates` with
    which the mean density of all so far is most like the map. `fit` of one replica to the map, blurred so far that it tells of
    motions of several Å; `fitted` (N, 3): what the fit of one model ended with, in Å; `given` (N, 3): the model before it:
    often a conformation of its own; `placed` (N, 3): such as `two_places.find_two_places` returns.
    """
    if replicas == 1:
        return [fitted]
    pool = [*placed, *candidates(topology, fitted, given, replicas)]
    densities = [density_of(fit, each) for each in pool]
    target = np.nan_to_num(fit.target.data.astype(np.float64)).ravel()
    overlap = np.array([density @ target for density in densities])
    products = np.array([[a @ b for b in densities] for a in densities])
    chosen = [*range(max(len(placed), 1))]
    while len(chosen) < min(replicas, len(pool)):
        left = [number for number in range(len(pool)) if number not in chosen]
        likeness = [
            overlap[[*chosen, each]].sum() / np.sqrt(products[np.ix_([*chosen, each], [*chosen, each])].sum())
            for each in left
        ]
        chosen.append(left[int(np.argmax(likeness))])
    # Of a molecule without modes some begin where others do, and part by noise.
    chosen += [chosen[number % len(chosen)] for number in range(replicas - len(chosen))]
    return [pool[number] for number in chosen]


def candidates(
    topology: app.Topology, fitted: np.ndarray, given: np.ndarray, replicas: int
) -> list[np.ndarray]:
    """Return models from which replicas may begin, in Å: the fitted one first, the given one where it differs, and those deformed
    both ways along soft modes by each of `AMPLITUDES`.
    """
    found = known_models(topology, fitted, given)
    for mode in soft_modes(topology, fitted, max(MODES, replicas // 2)):
        found += [fitted + sign * amplitude * mode for amplitude in AMPLITUDES for sign in (1, -1)]
    return found


def known_models(topology: app.Topology, fitted: np.ndarray, given: np.ndarray) -> list[np.ndarray]:
    """Return the fitted model (Å), and the given one where it differs by the least of `AMPLITUDES`."""
    trace = trace_of(topology)
    differs = np.sqrt(((fitted[trace] - given[trace]) ** 2).sum(axis=1).mean()) >= AMPLITUDES[0]
    return [fitted, *([given] if differs else [])]


def density_of(fit: DensityFit, positions: np.ndarray) -> np.ndarray:
    """Return the density of a model (Å) on the voxels of the target, shape (nz · ny · nx,), float64."""
    module = _modules.get(fit)
    if module is None:
        module = _modules[fit] = fit.create_module()
    density = kernel.density_splat(
        fit.fitted_positions(positions),
        module.amplitudes,
        module.exponents,
        module.cutoff,
        module.matrix,
        module.origin,
        list(module.target.shape),
    )
    return density.numpy().astype(np.float64).ravel()


# What evaluates each: it takes longer to make than to evaluate.
_modules: WeakKeyDictionary[DensityFit, Any] = WeakKeyDictionary()


def soft_modes(
    topology: app.Topology, positions: np.ndarray, count: int, reach: float = REACH
) -> list[np.ndarray]:
    """Return the softest deformations of a model, each of shape (N, 3) with an RMSD of 1 over its trace.

    They are those of the anisotropic network model (Atilgan et al. 2001): equal springs between the CA or P atoms of residues
    that are at most `REACH` apart by default. Every atom goes with the traced atom next to it. `positions` (N, 3) in Å;
    `reach` in Å between two residues that are joined.
    """
    traced = [atom.index for atom in topology.atoms() if atom.name in ("CA", "P")]
    step = -(-len(traced) // _MOST_TRACED) if traced else 1
    traced = traced[::step]
    if len(traced) < _RIGID + 1 or count < 1:
        return []
    points = positions[traced]
    hessian = _hessian(points, reach * step ** (1 / 3))
    last = min(_RIGID + count, 3 * len(points)) - 1
    _, vectors = eigh(hessian, subset_by_index=[_RIGID, last])
    nearest = cKDTree(points).query(positions)[1]
    modes = []
    for vector in vectors.T:
        displacement = vector.reshape(-1, 3) * np.sqrt(len(points))
        # Which of the two directions comes first is not the solver's to say.
        largest = displacement.ravel()[np.abs(displacement).argmax()]
        modes.append(np.sign(largest) * displacement[nearest])
    return modes


def _hessian(points: np.ndarray, reach: float) -> np.ndarray:
    n = len(points)
    hessian = np.zeros((n, 3, n, 3))
    for i, j in cKDTree(points).query_pairs(reach, output_type="ndarray"):
        along = points[j] - points[i]
        block = np.outer(along, along) / (along @ along)
        hessian[i, :, j] -= block
        hessian[j, :, i] -= block
        hessian[i, :, i] += block
        hessian[j, :, j] += block
    return hessian.reshape(3 * n, 3 * n)

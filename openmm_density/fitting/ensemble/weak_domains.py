"""Domains that a map tells by its own density: where a model's is weak, part of the molecules are elsewhere.

A domain that is in two places has in each of them only as much density as molecules have it there, beside a core in which all
agree. Soft modes do not see a domain that touches its neighbours; this does, and says nothing of where it moves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from openmm import app
from scipy.ndimage import uniform_filter1d

from ...energies.density_fit import DensityFit
from ...models.rigid_domains import SMALLEST
from .starts import density_of

WEAK = 0.85
"""Of the map's density beside the model's, where it is strong: less is weak."""
STRONG = 0.75
"""The quantile of the residues that is taken for strong."""
MOST = 4
"""Domains, the longest ones."""
_SMOOTHED, _TOGETHER = 9, 5


def weak_domains(fit: DensityFit, topology: app.Topology, model: np.ndarray) -> np.ndarray | None:
    """Return the domain of each atom: 0 where the density is as elsewhere, and a number of its own for each weak stretch.

    Parameters
    ----------
    model : np.ndarray, shape (N, 3)
        In Å.

    Returns
    -------
    np.ndarray of int, shape (N,), or None
        None where no stretch of `SMALLEST` residues is weak.
    """
    strength = _density_beside(fit, topology, model)
    residues = list(topology.residues())
    of_residue = np.zeros(len(residues), dtype=np.int64)
    for number, (begin, end) in enumerate(_stretches(strength < WEAK, residues)[:MOST], start=1):
        of_residue[begin:end] = number
    if not of_residue.any():
        return None
    return of_residue[[atom.residue.index for atom in topology.atoms()]]


def _density_beside(fit: DensityFit, topology: app.Topology, model: np.ndarray) -> np.ndarray:
    """Return the map's density at each residue beside the model's, smoothed along chains, 1 where it is strong."""
    target = fit.target
    own = density_of(fit, model).reshape(target.data.shape).astype(np.float32)
    found = (np.nan_to_num(each.value_at(model)) for each in (target, replace(target, data=own)))
    atoms = list(topology.atoms())
    of_atom = np.array([atom.residue.index for atom in atoms])
    heavy = np.array([atom.element is not None and atom.element.atomic_number > 1 for atom in atoms])
    n = topology.getNumResidues()
    sums = [np.bincount(of_atom[heavy], values[heavy], n) for values in found]
    for chain in topology.chains():
        of_chain = np.array([residue.index for residue in chain.residues()])
        for values in sums:
            values[of_chain] = uniform_filter1d(values[of_chain], _SMOOTHED, mode="nearest")
    ratio = sums[0] / np.where(sums[1] > 0, sums[1], np.inf)
    strong = np.quantile(ratio, STRONG)
    return ratio / strong if strong > 0 else np.ones(n)


def _stretches(is_weak: np.ndarray, residues: list[app.topology.Residue]) -> list[tuple[int, int]]:
    """Return where stretches of weak residues begin and end, gaps of some residues filled, the longest first."""
    found: list[list[int]] = []
    for k in np.flatnonzero(is_weak):
        last = found[-1] if found else None
        if last is not None and k - last[1] < _TOGETHER and residues[k].chain is residues[last[0]].chain:
            last[1] = k + 1
        else:
            found.append([k, k + 1])
    long = [(int(begin), int(end)) for begin, end in found if end - begin >= SMALLEST]
    return sorted(long, key=lambda each: each[0] - each[1])

"""The conformations among the replicas of an ensemble, with their weights, and how the chain varies over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from openmm import app
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

APART_PER_RESOLUTION, LEAST_APART = 0.5, 1.5
"""Of the map's resolution, and at least so many Å, is the RMSD from which two replicas are two conformations."""


@dataclass(frozen=True)
class Conformation:
    """Replicas that are one conformation."""

    replicas: list[int]  # From 0, the one of the largest weight first
    weight: float  # Of all of them


def trace_of(topology: app.Topology) -> np.ndarray:
    """Return the CA and P atoms; all atoms where there are none."""
    found = [atom.index for atom in topology.atoms() if atom.name in ("CA", "P")]
    return np.array(found or range(topology.getNumAtoms()))


def trace_distances(models: np.ndarray, trace: np.ndarray) -> np.ndarray:
    """Return the RMSD in Å between the traces of models (R, N, 3) where they are in the map, shape (R, R)."""
    points = models[:, trace]
    return np.array([np.sqrt(((points - each) ** 2).sum(axis=2).mean(axis=1)) for each in points])


def conformations(
    models: np.ndarray, weights: np.ndarray, trace: np.ndarray, resolution: float
) -> list[Conformation]:
    """Return the conformations among replicas, the heaviest first.

    Replicas are joined from the nearest on as long as no two of a conformation are farther apart than `APART_PER_RESOLUTION`.
    `models` (R, N, 3) in Å; `weights` (R,); `resolution` of the map in Å.
    """
    if len(models) == 1:
        return [Conformation([0], float(weights[0]))]
    apart = trace_distances(models, trace)
    tree = linkage(squareform((apart + apart.T) / 2, checks=False), "complete")
    labels = fcluster(tree, max(APART_PER_RESOLUTION * resolution, LEAST_APART), "distance")
    found = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        members = members[np.argsort(-weights[members], kind="stable")]
        found.append(Conformation(members.tolist(), float(weights[members].sum())))
    return sorted(found, key=lambda each: -each.weight)


def fluctuations(models: np.ndarray, weights: np.ndarray, topology: app.Topology) -> np.ndarray:
    """Return the RMSF of every residue in Å, shape (n_residues,): of its CA or P, else of its atoms' centre.

    √(Σ w |x − x̄|²) over the replicas, where they are in the map. `models` (R, N, 3) in Å; `weights` (R,).
    """
    points = []
    for residue in topology.residues():
        atoms = list(residue.atoms())
        traced = [atom.index for atom in atoms if atom.name in ("CA", "P")] or [atom.index for atom in atoms]
        points.append(models[:, traced].mean(axis=1))
    of_residues = np.array(points)
    mean = (weights[None, :, None] * of_residues).sum(axis=1, keepdims=True)
    return np.sqrt((weights[None, :, None] * (of_residues - mean) ** 2).sum(axis=(1, 2)))

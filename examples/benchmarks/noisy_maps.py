"""Maps of a known model as a microscope would give them: B factors that vary, solvent around it, and half maps with noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from openmm import app
from scipy import ndimage
from scipy.spatial import cKDTree

from openmm_density import DensityMap
from openmm_density.energies.form_factors import blurring_b_factor
from openmm_density.maps.fourier import fourier_filtered
from openmm_density.validation.fsc import HALF_MAP_THRESHOLD, half_map_fsc

N_HALVES = 3
SPREAD = 0.5
"""The mean B factor beyond that of the resolution, in those of the resolution: 18 Å² at 3 Å, 128 Å² at 8 Å."""
SOLVENT_LEVEL = 0.6
"""Of the mean density of a protein without its hydrogens: that of amorphous ice, from water's and protein's composition."""
SOLVENT_B = 50.0
"""Å²: how much wider the boundary of the solvent is than that of atoms (Jiang and Bruenger, J. Mol. Biol. 243, 100 (1994))."""
PROBE, SHRINKAGE, ATOM_RADIUS = 1.1, 0.9, 1.7
"""Å: solvent is where no atom is within radius and probe, and what is within the shrinkage of that (the same)."""
BURIAL_RADIUS = 10.0
SHARPENING = 2.0
"""By how many B factors of the resolution the noise, white before, is sharpened: the FSC is then 0.5 at about 1.15 times the
resolution, as that of many reconstructions."""
FILTER_EDGE = 0.1
"""Half the width of the low-pass filter's cosine edge, as a part of the frequency at which it is one half."""


@dataclass(frozen=True)
class NoisyMaps:
    """Maps of one model at one resolution.

    Attributes
    ----------
    noiseless : DensityMap
        What the noise was added to.
    full : DensityMap
        The mean of the first two half maps: what a model is fitted into.
    halves : tuple of DensityMap
        The first two, whose FSC falls to 0.143 at the resolution, and a third with noise of its own: no part of `full`, which
        only a simulation has.
    unfiltered : tuple of DensityMap
        The first two as they are before the low-pass filter that all the others went through.
    """

    noiseless: DensityMap
    full: DensityMap
    halves: tuple[DensityMap, DensityMap, DensityMap]
    unfiltered: tuple[DensityMap, DensityMap]


def relative_b_factors(topology: app.Topology, positions: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return B factors with a mean of 1: larger at the surface and at the ends of side chains, and varying along the chain.

    Parameters
    ----------
    topology : openmm.app.Topology
        Of N atoms, without hydrogens.
    positions : np.ndarray, shape (N, 3)
        Å.
    seed : int
        Of the variation along the chain.

    Returns
    -------
    np.ndarray, shape (N,)
    """
    atoms = list(topology.atoms())
    tree = cKDTree(positions)
    neighbours = np.array([len(found) for found in tree.query_ball_point(positions, BURIAL_RADIUS)])
    exposure = (neighbours.mean() - neighbours) / neighbours.std()
    alpha = {atom.residue.index: atom.index for atom in atoms if atom.name == "CA"}
    along = np.array(
        [
            np.linalg.norm(positions[i] - positions[alpha.get(atoms[i].residue.index, i)])
            for i in range(len(atoms))
        ]
    )
    in_backbone = np.array([atom.name in ("N", "CA", "C", "O", "OXT") for atom in atoms])
    white = np.random.default_rng(seed).standard_normal(topology.getNumResidues())
    smooth = ndimage.gaussian_filter1d(white, 5.0)
    smooth /= smooth.std()
    residue = np.array([atom.residue.index for atom in atoms])
    logarithm = 0.4 * exposure + 0.35 * smooth[residue] + np.where(in_backbone, 0.0, 0.12 * along)
    values = np.exp(np.clip(logarithm - logarithm.mean(), -2.0, 1.6))
    return values / values.mean()


def b_factors_at(resolution: float, relative: np.ndarray) -> np.ndarray:
    """Return the B factors in Å² of atoms in a map: that of the resolution itself, and their own, whose mean is half of it."""
    return blurring_b_factor(resolution) * (1 + SPREAD * relative)


def noisy_maps(
    topology: app.Topology, positions: np.ndarray, resolution: float, relative: np.ndarray, seed: int = 0
) -> NoisyMaps:
    """Simulate the maps of a model.

    The density is gemmi's with electron form factors and B factors of `b_factors_at`; less what the solvent in its place would
    have, so that solvent is 0 and contrast that of protein in ice. The noise of each half is Gaussian, and
    white but for a sharpening: its amplitude rises up to the resolution as exp(B s²/4). It is so strong that the FSC of the first
    two halves around the model falls to 0.143 at the resolution.

    Parameters
    ----------
    topology : openmm.app.Topology
        Of N atoms, without hydrogens.
    positions : np.ndarray, shape (N, 3)
        Å.
    resolution : float
        Å.
    relative : np.ndarray, shape (N,)
        From `relative_b_factors`.
    seed : int
        Of the noise.
    """
    voxel = float(np.clip(resolution / 4, 0.75, 1.5))
    finest = 2 * voxel
    b_factors = b_factors_at(resolution, relative)
    margin = max(10.0, 2 * resolution)
    protein = DensityMap.simulate(topology, positions, finest, voxel, margin=margin, b_factors=b_factors)
    signal = replace(protein, data=protein.data - _solvent_in_place(protein, positions, resolution))
    noise = [_coloured_noise(signal, resolution, 1000 * seed + n) for n in range(N_HALVES)]
    amount = _amount_of_noise(signal, noise, positions, resolution)
    halves = [replace(signal, data=signal.data + np.float32(amount) * each) for each in noise]
    filtered = [_low_passed(each, resolution) for each in halves]
    full = replace(signal, data=(filtered[0].data + filtered[1].data) / 2)
    return NoisyMaps(_low_passed(signal, resolution), full, tuple(filtered), tuple(halves[:2]))


def _solvent_in_place(protein: DensityMap, positions: np.ndarray, resolution: float) -> np.ndarray:
    """Return the density that the solvent would have in the molecule's place, as blurred as the molecule."""
    wide = protein.mask_around(positions, ATOM_RADIUS + PROBE)
    steps = protein.voxel_size[::-1]
    inside = ndimage.distance_transform_edt(wide, sampling=steps) > SHRINKAGE
    level = SOLVENT_LEVEL * float(protein.data[inside].mean(dtype=np.float64))
    b = SOLVENT_B + (1 + SPREAD) * blurring_b_factor(resolution)
    return np.float32(level) * fourier_filtered(
        inside.astype(np.float32), protein.matrix, lambda s2: np.exp(-b / 4 * s2)
    )


def _coloured_noise(like: DensityMap, resolution: float, seed: int) -> np.ndarray:
    white = np.random.default_rng(seed).standard_normal(like.shape, dtype=np.float32)
    b, highest = SHARPENING * blurring_b_factor(resolution), resolution**-2
    return fourier_filtered(white, like.matrix, lambda s2: np.exp(b / 4 * np.minimum(s2, highest)))


def _amount_of_noise(
    signal: DensityMap, noise: list[np.ndarray], positions: np.ndarray, resolution: float
) -> float:
    """Find by bisection how strong the noise is for which the FSC of the first two halves falls where it should."""

    def falls_at(amount: float) -> float:
        first, second = (replace(signal, data=signal.data + np.float32(amount) * each) for each in noise[:2])
        return half_map_fsc(first, second, positions).resolution(HALF_MAP_THRESHOLD, dips=False)

    unit = float(signal.data.std(dtype=np.float64) / noise[0].std(dtype=np.float64))
    low, high = 1e-3 * unit, 1e2 * unit
    for _ in range(18):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if falls_at(middle) < resolution else (low, middle)
    return float(np.sqrt(low * high))


def _low_passed(density_map: DensityMap, resolution: float) -> DensityMap:
    def transfer(s2: np.ndarray) -> np.ndarray:
        part = np.clip(
            (np.sqrt(np.maximum(s2, 0)) * resolution - (1 - FILTER_EDGE)) / (2 * FILTER_EDGE), 0, 1
        )
        return 0.5 * (1 + np.cos(np.pi * part))

    return replace(density_map, data=fourier_filtered(density_map.data, density_map.matrix, transfer))

"""A small model with B factors that are known, and maps of it."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import ndimage

from openmm_density import DensityMap
from openmm_density.models.structures import Model


@dataclass(frozen=True)
class KnownModel:
    """A model of 97 residues whose B factors (Å²) vary along its chain, and more so to the ends of its side chains."""

    model: Model
    b_factors: np.ndarray
    residues: np.ndarray

    def by_residue(self, values):
        return np.bincount(self.residues, values) / np.bincount(self.residues)

    def map(self, resolution, **options):
        topology, positions = self.model.topology, self.model.positions
        options = {"b_factors": self.b_factors, "voxel_size": resolution / 3, **options}
        return DensityMap.simulate(topology, positions, resolution, **options)

    def pearson(self, b_factors):
        return np.corrcoef(self.by_residue(b_factors), self.by_residue(self.b_factors))[0, 1]


@pytest.fixture(scope="session")
def known(emd5925) -> KnownModel:
    atoms = list(emd5925.topology.atoms())
    smooth = ndimage.gaussian_filter1d(np.random.default_rng(2).standard_normal(97), 3.0)
    logarithm = (smooth / smooth.std())[[atom.residue.index for atom in atoms]]
    logarithm += [0.0 if atom.name in ("N", "CA", "C", "O") else 0.4 for atom in atoms]
    b_factors = np.clip(40 * np.exp(0.6 * logarithm), 10, 150)
    return KnownModel(emd5925, b_factors, np.array([atom.residue.index for atom in atoms]))

"""`geometry_scores`: Z-scores of bonds and angles against ideal values, as depositions are judged."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from openmm import app

from ..base.units import positions_in_angstrom, takes_units
from ..models.chemistry.elements import is_hydrogen
from ..models.chemistry.monomers.terms import find_terms
from ..models.chemistry.residues import atom_label
from ..models.chemistry.topologies import openmm_topology

LIMIT_IN_SIGMA = 4.0
"""Standard deviations from which a bond or angle is named."""
OUTLIER = 5.0
"""Standard deviations from which the wwPDB's reports call one an outlier."""


@dataclass(frozen=True)
class GeometryOutlier:
    """A bond or angle far from its ideal value; `value` and `ideal` are in Å or degrees."""

    atoms: tuple[str, ...]
    value: float
    ideal: float
    z: float


@dataclass(frozen=True)
class GeometryScores:
    """How far the bonds and angles of a model are from ideal values.

    Attributes
    ----------
    bond_rmsz, angle_rmsz : float
        Root mean square Z-scores; NaN where there are none.
    n_bonds, n_angles : int
    outliers : list of GeometryOutlier
        Those more than 4 standard deviations off, bonds first, the worst of each first.
    unknown : tuple of str
        Residues of which no ideal values are known.
    """

    bond_rmsz: float
    angle_rmsz: float
    n_bonds: int
    n_angles: int
    outliers: list[GeometryOutlier]
    unknown: tuple[str, ...]

    def beyond(self, limit: float, kind: str) -> int:
        """Return how many bonds ("bond") or angles ("angle") are more than a limit of at least 4 standard deviations off."""
        size = {"bond": 2, "angle": 3}[kind]
        return sum(abs(each.z) > limit and len(each.atoms) == size for each in self.outliers)


@takes_units("positions")
def geometry_scores(
    topology: app.Topology,
    positions: Any,
    monomers: str | os.PathLike[str] | None = None,
    dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
) -> GeometryScores:
    """Compare the bonds and angles of a model's heavy atoms with the ideal values of the CCP4 monomer library.

    The values are those of `openmm_density.restraints.IdealGeometryRestraint`.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
        With bonds.
    positions : Quantity or array_like, shape (N, 3)
        Å where plain.
    monomers, dictionaries
        As for `openmm_density.restraints.IdealGeometryRestraint`.

    Raises
    ------
    InputError
        The monomer library or a dictionary cannot be read, or the numbers of atoms differ.
    """
    topology = openmm_topology(topology)
    positions = positions_in_angstrom(positions, topology.getNumAtoms())
    terms = find_terms(topology, positions, monomers, dictionaries)
    atoms = list(topology.atoms())
    heavy = np.array([not is_hydrogen(atom) for atom in atoms], dtype=bool)
    outliers = []
    rms = []
    for kind, scale in ((terms.bonds.among(heavy), 1.0), (terms.angles.among(heavy), 180.0 / np.pi)):
        z, values = kind.z(positions), scale * kind.measured(positions)
        rms.append(float(np.sqrt(np.mean(z**2))) if len(z) else float("nan"))
        for k in np.argsort(-np.abs(z), kind="stable")[: np.count_nonzero(np.abs(z) > LIMIT_IN_SIGMA)]:
            names = tuple(atom_label(atoms[index]) for index in kind.atoms[k])
            outliers.append(
                GeometryOutlier(names, float(values[k]), float(scale * kind.values[k]), float(z[k]))
            )
    n_bonds, n_angles = (len(kind.among(heavy).atoms) for kind in (terms.bonds, terms.angles))
    return GeometryScores(rms[0], rms[1], n_bonds, n_angles, outliers, terms.unknown)

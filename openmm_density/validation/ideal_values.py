"""`geometry_scores`: Z-scores of bonds and angles against ideal values, as depositions are judged."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from openmm import app

from ..base.units import positions_in_angstrom, takes_units
from ..base.wording import atom_label, listing
from ..models.chemistry.monomers.terms import find_terms, is_cis
from ..models.chemistry.topologies import hydrogen_mask, openmm_topology
from ..models.chemistry.torsions import peptide_torsions

LIMIT_IN_SIGMA = 4.0
"""Standard deviations from which a bond or angle is named."""
OUTLIER = 5.0
"""Standard deviations from which the wwPDB's reports call one an outlier."""

_MOST_NAMED = 10


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
    unnamed : tuple of str
        Atoms that their residues do not have in the library; hydrogens do not count.
    borrowed : tuple of str
        Names of residues that the library lacks, and the package's table has.
    """

    bond_rmsz: float
    angle_rmsz: float
    n_bonds: int
    n_angles: int
    outliers: list[GeometryOutlier]
    unknown: tuple[str, ...]
    unnamed: tuple[str, ...]
    borrowed: tuple[str, ...]

    @property
    def notes(self) -> list[str]:
        """What no Z-score counts, or not by the library, in a sentence each."""
        return [
            f"{sentence}: {listing(list(names), _MOST_NAMED)}."
            for sentence, names in (
                (
                    "No ideal values are known of these residues, and no RMSZ counts their bonds and angles",
                    self.unknown,
                ),
                (
                    "The monomer library does not have these atoms of their residues, and no RMSZ counts them",
                    self.unnamed,
                ),
                (
                    "The monomer library lacks these residues, whose ideal values are those of the package's table",
                    self.borrowed,
                ),
            )
            if names
        ]

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
    return IdealValues(topology, monomers, dictionaries).scores(positions)


class IdealValues:
    """The ideal values of the bonds and angles of a topology, found once for many positions.

    Arguments as for `geometry_scores`.
    """

    def __init__(self, topology: app.Topology, monomers: Any = None, dictionaries: Any = ()) -> None:
        self._topology, self._source = topology, (monomers, dictionaries)
        self._atoms = list(topology.atoms())
        self._heavy = ~hydrogen_mask(topology)
        self._peptides = peptide_torsions(topology)
        self._known: dict[bytes, tuple[Any, ...]] = {}

    def scores(self, positions: np.ndarray, of: np.ndarray | None = None) -> GeometryScores:
        """Return the Z-scores at positions (N, 3) in Å; `of` bool (N,): only of what has one of these atoms."""
        bonds, angles, *left_out = self._at(positions)
        if of is not None:
            bonds, angles = (kind.where(of[kind.atoms].any(axis=1)) for kind in (bonds, angles))
        outliers = []
        rms = []
        for kind, scale in ((bonds, 1.0), (angles, 180.0 / np.pi)):
            z, values = kind.z(positions), scale * kind.measured(positions)
            rms.append(float(np.sqrt(np.mean(z**2))) if len(z) else float("nan"))
            for k in np.argsort(-np.abs(z), kind="stable")[: np.count_nonzero(np.abs(z) > LIMIT_IN_SIGMA)]:
                names = tuple(atom_label(self._atoms[index]) for index in kind.atoms[k])
                outliers.append(
                    GeometryOutlier(names, float(values[k]), float(scale * kind.values[k]), float(z[k]))
                )
        return GeometryScores(rms[0], rms[1], len(bonds.atoms), len(angles.atoms), outliers, *left_out)

    def _at(self, positions: np.ndarray) -> tuple[Any, ...]:
        """Return the bonds and angles of heavy atoms, which depend on what peptides are cis, and what is not known."""
        key = is_cis(positions, self._peptides).tobytes()
        if key not in self._known:
            terms = find_terms(self._topology, positions, *self._source)
            kept = (kind.among(self._heavy) for kind in (terms.bonds, terms.angles))
            named = {atom_label(atom) for atom, heavy in zip(self._atoms, self._heavy.tolist()) if heavy}
            unnamed = tuple(atom for atom in terms.unnamed if atom in named)
            self._known = {key: (*kept, terms.unknown, unnamed, terms.borrowed)}
        return self._known[key]

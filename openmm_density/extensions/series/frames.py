"""The volumes of a series with their fits, and their models as a path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...models.rigid_domains import DomainMotion
from .choice import faults
from .frame_fit import FrameFit
from .internal_coordinates import InternalCoordinate


@dataclass(frozen=True)
class SeriesFrame:
    """One volume with its fits.

    Attributes
    ----------
    number : int
        From 1.
    map : Path
    fits : tuple of FrameFit
    kept : FrameFit
        The one that stays.
    passes_differ : float, optional
        The Cα RMSD between the kept model and the best one that came from another side, in Å, where there is one.
    other : FrameFit, optional
        That one.
    """

    number: int
    map: Path
    fits: tuple[FrameFit, ...]
    kept: FrameFit
    passes_differ: float | None = None
    other: FrameFit | None = None

    @property
    def faults(self) -> int:
        """Clashes, outliers, twisted peptides and wrong centres of the kept model."""
        return faults(self.kept.summary["geometry_final"])


@dataclass(frozen=True)
class SeriesPath:
    """The models as a path.

    Attributes
    ----------
    steps, steps_in_place : np.ndarray, shape (F − 1,)
        The Cα RMSD between neighbours in Å, superposed and where they are.
    from_first : np.ndarray, shape (F,)
        The Cα RMSD to the first model, superposed, in Å.
    volume_changes : list of float or None, length F − 1
        1 − the correlation of neighbouring volumes around the models.
    jumps, volume_jumps : list of int
        Which steps of the models and of the volumes are far above the others, from 0.
    domains : np.ndarray of int, shape (R,)
        The rigid domain of each residue, from 0.
    domain_stretches : list of list of str
        What the residues of each domain are called.
    motions : list of DomainMotion
    coordinates : list of (InternalCoordinate, np.ndarray)
        With their values, shape (F,).
    """

    steps: np.ndarray
    steps_in_place: np.ndarray
    from_first: np.ndarray
    volume_changes: list[float | None]
    jumps: list[int]
    volume_jumps: list[int]
    domains: np.ndarray
    domain_stretches: list[list[str]]
    motions: list[DomainMotion]
    coordinates: list[tuple[InternalCoordinate, np.ndarray]]

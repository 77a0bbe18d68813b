"""The volumes of a series with their fits, and their models as a path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...models.rigid_domains import DomainMotion
from .frame_fit import FrameFit, faults
from .internal_coordinates import InternalCoordinate


@dataclass(frozen=True)
class SeriesFrame:
    """One volume with its fits."""

    number: int  # From 1
    map: Path
    fits: tuple[FrameFit, ...]
    kept: FrameFit  # The one that stays
    # The Cα RMSD between the kept model and the best one that came from another side, in Å, where there is one
    passes_differ: float | None = None
    other: FrameFit | None = None  # That one

    @property
    def faults(self) -> int:
        """Clashes, outliers, twisted peptides and wrong centres of the kept model."""
        return faults(self.kept.summary["geometry_final"])


@dataclass(frozen=True)
class SeriesPath:
    """The models as a path."""

    # `steps`, `steps_in_place` (F − 1,): the Cα RMSD between neighbours in Å, superposed and where they are.
    steps: np.ndarray
    steps_in_place: np.ndarray
    from_first: np.ndarray  # (F,), the Cα RMSD to the first model, superposed, in Å
    # length F, 1 − the correlation of neighbouring volumes around the models
    volume_changes: list[float | None]
    # `jumps`, `volume_jumps`: which steps of the models and of the volumes are far above the others, from 0.
    jumps: list[int]
    volume_jumps: list[int]
    domains: np.ndarray  # int (R,), the rigid domain of each residue, from 0
    domain_stretches: list[list[str]]  # What the residues of each domain are called
    motions: list[DomainMotion]
    coordinates: list[tuple[InternalCoordinate, np.ndarray]]  # With their values, shape (F,)

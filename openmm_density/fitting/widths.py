"""A density force with atoms of the widths that a map may show them with."""

from __future__ import annotations

import weakref
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from ..energies.density_fit import DensityFit

BLURS = (1.0, 1.1, 1.2, 1.35, 1.5)
"""Widths that an atom's Gaussian may have, in those of the map's resolution. Many maps show atoms wider than their resolution
says; narrower ones crowd where the density is highest, into clashes."""


class DensityWidths:
    """A density force with atoms of any width, in those of its resolution, and without some residues, each found once.

    `side`: of the map, in Å; atoms wider than it are not compared.
    """

    def __init__(self, density: DensityFit, side: float) -> None:
        self._density = density
        self._compared = [width for width in BLURS if width * density.resolution <= side]
        self._known: dict[tuple[float, tuple[int, ...]], DensityFit] = {(1.0, ()): density}
        self._begun: dict[float, Future[DensityFit]] = {}

    def begin(self) -> None:
        """Begin to find those that `best` compares, in a thread: they take Fourier transforms, what a fit does next is Python."""
        pool = ThreadPoolExecutor(1)
        wider = [width for width in self._compared if width != 1.0]
        self._begun = {width: pool.submit(self._density.with_atoms_wider, width) for width in wider}
        pool.shutdown(wait=False)
        # The interpreter's exit would wait for those of a fit that was interrupted.
        weakref.finalize(self, pool.shutdown, wait=False, cancel_futures=True)

    def at(self, width: float, left: tuple[int, ...] = ()) -> DensityFit:
        """Return the force with atoms of a width, without those of residues that are left."""
        key = width, left
        if key not in self._known:
            self._known[key] = self._wider(width, left) if width != 1.0 else self._without(left)
        return self._known[key]

    def best(self, positions: np.ndarray, left: tuple[int, ...] = ()) -> float:
        """Return the width at which a model at positions (N, 3) in Å is most similar to the map."""
        fitted = self.at(1.0, left).fitted_positions(positions)
        return max(self._compared, key=lambda width: self.at(width, left).similarity_of_fitted(fitted))

    def _wider(self, width: float, left: tuple[int, ...]) -> DensityFit:
        # Not the map, the atoms are blurred. What is left out has no part in the map that they are compared with.
        whole = self._begun[width].result() if width in self._begun else None
        return whole if whole is not None and not left else self.at(1.0, left).with_atoms_wider(width)

    def _without(self, left: tuple[int, ...]) -> DensityFit:
        density = self._density
        residue_of = np.array([atom.residue.index for atom in density.topology.atoms()])
        pulled = ~np.isin(residue_of[density.atoms], left)
        # Nothing is left of a model that is nowhere sure.
        return density.with_some_atoms(pulled) if pulled.any() else density

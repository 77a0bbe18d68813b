"""The atoms that are refined against amplitudes: a model's own, and behind them those of alternate conformers fitted with it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...energies.atomic_parameters.model_atoms import ModelAtoms
from ...fitting.fit_result import FitResult
from ...fitting.written_atoms import prepared_occupancies, written_alternates
from ...models.conformer_topology import PlacedConformers


@dataclass(frozen=True)
class RefinedAtoms:
    """The N atoms of a result and the K of its fitted conformers; `in_file` int (M,): those that are written."""

    atoms: ModelAtoms  # `atoms.positions` (N + K, 3) in Å
    b_factors: np.ndarray  # (N + K,), Å²
    in_file: np.ndarray

    @classmethod
    def of(cls, result: FitResult) -> RefinedAtoms:
        """Return those of a result."""
        prepared, found = result.prepared, result.conformers
        positions, b_factors = result.final, prepared.b_factors
        occupancies = np.clip(prepared_occupancies(result), 0, 1)
        in_file = prepared.prepared_index[prepared.prepared_index >= 0]
        beside, n = None, len(positions)
        if found is not None and len(found.copies):
            others = found.copies.others
            given = np.append(written_alternates(result).b_factors, np.nan)[others.alternates]
            b_factors = np.append(b_factors, np.where(np.isnan(given), b_factors[others.originals], given))
            in_file = np.append(in_file, n + np.flatnonzero(others.alternates >= 0))
            beside = PlacedConformers(others, found.positions[n:], found.copies.occupancies()[n:])
        atoms = ModelAtoms.of(prepared.topology, positions, occupancies, beside)
        has_element = np.array([atom.element is not None for atom in atoms.topology.atoms()])
        return cls(atoms, b_factors, in_file[has_element[in_file]])

    def with_b_factors(self, result: FitResult, b_factors: np.ndarray) -> FitResult:
        """Return a result with other refined B factors (N + K,) in Å²."""
        assert result.b_factors is not None
        own, further = np.split(b_factors, [self.atoms.n_own])
        of_conformers = result.b_factors.of_conformers.copy()
        if self.atoms.further is not None:
            given = self.atoms.further.alternates
            order = np.concatenate(result.prepared.model.alternates.conformers())
            of_conformers[np.argsort(order)[given[given >= 0]]] = further[given >= 0]
        refined = replace(result.b_factors, b_factors=own.copy(), of_conformers=of_conformers)
        return replace(result, prepared=replace(result.prepared, b_factors=own)).with_found(b_factors=refined)

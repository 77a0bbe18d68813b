"""When a stage has done its work: similarity and model no longer change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

BLOCK = 500
SIMILARITY_TOLERANCE = 1e-3
RMSD_TOLERANCE = 0.3
BLOCKS_AT_REST = 2


@dataclass
class Plateau:
    """Compare means over blocks of steps, in which thermal motion averages out.

    Converged is what has, `BLOCKS_AT_REST` times in a row, changed less than the tolerances from one block to the next. The
    fields are plain lists and numbers, so that a saved state can hold them.

    Attributes
    ----------
    block : int
        Steps in a block.
    similarity_tolerance : float
        Change of the mean similarity.
    rmsd_tolerance : float
        RMSD in Å between the mean models.
    similarities : list of float
        Of the block in progress.
    total : list of float, optional
        Sum of the models of the block in progress.
    previous : list, optional
        Mean similarity and mean model of the last block.
    at_rest : int
        Blocks in a row that did not change.
    steps : int
        In the block in progress.
    """

    block: int = BLOCK
    similarity_tolerance: float = SIMILARITY_TOLERANCE
    rmsd_tolerance: float = RMSD_TOLERANCE
    similarities: list[float] = field(default_factory=list)
    total: list[list[float]] | None = None
    previous: list[Any] | None = None
    at_rest: int = 0
    steps: int = 0

    def is_sound(self) -> bool:
        """Tell whether sums and means are of models, as those of a saved state must be."""
        models = [self.total]
        if self.previous is not None:
            if len(self.previous) != 2 or not isinstance(self.previous[0], (int, float)):
                return False
            models.append(self.previous[1])
        arrays = [_as_positions(model) for model in models if model is not None]
        return all(array is not None and array.shape == arrays[0].shape for array in arrays)

    def update(self, similarity: float, positions: np.ndarray, steps: int) -> bool:
        """Take a sample after so many more steps; tell whether the fit has converged.

        Parameters
        ----------
        similarity : float
        positions : np.ndarray, shape (n, 3)
            Of the atoms that count, in Å.
        steps : int
            Since the last sample.
        """
        self.similarities.append(similarity)
        total = positions if self.total is None else np.asarray(self.total) + positions
        self.total = total.tolist()
        self.steps += steps
        if self.steps >= self.block:
            mean, model = float(np.mean(self.similarities)), total / len(self.similarities)
            if self.previous is not None:
                before, model_before = self.previous
                rmsd = np.sqrt(((model - np.asarray(model_before)) ** 2).sum(axis=1).mean())
                rests = abs(mean - before) < self.similarity_tolerance and rmsd < self.rmsd_tolerance
                self.at_rest = self.at_rest + 1 if rests else 0
            self.previous = [mean, model.tolist()]
            self.similarities, self.total, self.steps = [], None, 0
        return self.at_rest >= BLOCKS_AT_REST


def _as_positions(model: Any) -> np.ndarray | None:
    try:
        array = np.asarray(model)
    except ValueError:
        return None
    is_model = array.dtype.kind in "if" and array.ndim == 2 and array.shape[1] == 3
    return array if is_model and np.isfinite(array).all() else None

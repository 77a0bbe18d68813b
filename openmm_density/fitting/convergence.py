"""When a stage has done its work: similarity and model no longer change."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

BLOCK = 500
SIMILARITY_TOLERANCE = 1e-3
RMSD_TOLERANCE = 0.3
BLOCKS_AT_REST = 2


@dataclass
class Plateau:
    """Compare means over blocks of steps: converged is what changed less than the tolerances `BLOCKS_AT_REST` times in a row."""

    block: int = BLOCK  # Steps in a block
    similarity_tolerance: float = SIMILARITY_TOLERANCE  # Change of the mean similarity
    rmsd_tolerance: float = RMSD_TOLERANCE  # RMSD in Å between the mean models
    similarities: list[float] = field(default_factory=list)  # Of the block in progress
    total: np.ndarray | None = None  # (n, 3), sum of the models of the block in progress, in Å
    # (n, 3), mean similarity and mean model of the last block
    previous: tuple[float, np.ndarray] | None = None
    at_rest: int = 0  # Blocks in a row that did not change
    steps: int = 0  # In the block in progress

    def update(self, similarity: float, positions: np.ndarray, steps: int) -> bool:
        """Count positions (n, 3) in Å after so many more steps; tell whether the fit has converged."""
        self.similarities.append(similarity)
        # Never in place: the sum so far may belong to a state that is rolled back to.
        self.total = positions if self.total is None else self.total + positions
        self.steps += steps
        if self.steps >= self.block:
            mean, model = float(np.mean(self.similarities)), self.total / len(self.similarities)
            if self.previous is not None:
                before, model_before = self.previous
                rmsd = np.sqrt(((model - model_before) ** 2).sum(axis=1).mean())
                rests = abs(mean - before) < self.similarity_tolerance and rmsd < self.rmsd_tolerance
                self.at_rest = self.at_rest + 1 if rests else 0
            self.previous = mean, model
            self.similarities, self.total, self.steps = [], None, 0
        return self.at_rest >= BLOCKS_AT_REST

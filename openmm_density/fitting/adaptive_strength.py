"""A strength that follows the similarity: up while it falls, down while it rises."""

from __future__ import annotations

import math
from dataclasses import dataclass

BOUNDS = (0.25, 4.0)
TIME_CONSTANT = 4.0


@dataclass
class AdaptiveStrength:
    """Scale the strength so that the similarity keeps rising, as the adaptive force scaling of GROMACS does, but within bounds.

    An exponential moving average of the similarity tells whether it rises. The factor grows by exp(Δt/τ) where it does not, and
    shrinks by the same where it does. Without bounds, on a model that fits and whose similarity therefore only fluctuates, the
    factor would wander off.
    """

    time_constant: float = TIME_CONSTANT  # τ in ps, of the average as well
    bounds: tuple[float, float] = BOUNDS  # Least and largest factor
    factor: float = 1.0  # By which the strength is multiplied
    average: float | None = None  # Of the similarity; None before the first

    def update(self, similarity: float, elapsed: float) -> float:
        """Update the factor with the similarity after so many more ps, and return it."""
        if self.average is None:
            self.average = similarity
            return self.factor
        before = self.average
        self.average += (1 - math.exp(-elapsed / self.time_constant)) * (similarity - before)
        change = math.exp(elapsed / self.time_constant)
        wanted = self.factor / change if self.average > before else self.factor * change
        self.factor = min(max(wanted, self.bounds[0]), self.bounds[1])
        return self.factor

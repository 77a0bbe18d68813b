"""The measures of similarity between a model's density and a map: what is true of each, in one table.

All that is asked of a measure outside the kernels is asked of `MEASURES`: which exist, how large S can be, what a map and the
weights of the atoms must be like. A new measure is a row here and, with its formula, a number in
`openmm_density.kernels.density.measures`; in ``measures.h`` and ``gpu_measures.py`` beside it, what the two kernels make of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..base.errors import InputError, as_argument


@dataclass(frozen=True)
class Measure:
    """A similarity S of a model and a map; the energy is k times its loss, `max_similarity` − S."""

    name: str  # What ``similarity=`` calls it
    # The constant of `openmm_density.kernels.density.measures` whose value tells the kernels of it. None for a
    # measure that needs no density of the model: the map itself is a potential, interpolated at the atoms.
    constant: str | None
    # The largest value that S can have; 0 for measures without a bound, whose energy is −k S
    max_similarity: float
    # Whether it is the variant that ``about_mean=True`` selects among measures of one name
    about_mean: bool = False
    # Whether its values for narrow and for wide Gaussians can be compared, so that the better width can be chosen by
    # it
    compares_widths: bool = False
    # Whether it divides by the total weight of the atoms, which then must be positive
    divides_by_weight: bool = False
    # Whether it takes a logarithm of both densities: some value of the map must be positive, and no weight negative.
    # What it adds to a density is `openmm_density.kernels.density.ENTROPY_FLOOR` of the map's mean.
    takes_logarithm: bool = False
    # Whether a model may be where S does not change as it moves, so that exactly no force acts
    can_be_constant: bool = False

    @property
    def number(self) -> int:
        """The kernels' integer."""
        # Names of measures are asked for by the command line's help, which does not wait for torch.
        from openmm_density.kernels.density import measures

        return int(getattr(measures, self.constant))

    @property
    def is_potential(self) -> bool:
        """Whether the map itself is the potential, as it is: neither resampled nor compared with a density of the model."""
        return self.constant is None

    @property
    def is_linear(self) -> bool:
        """Whether S of a mean density is the mean of S, so that no mean is better than the best of its parts."""
        return self.constant == "INNER_PRODUCT"

    @property
    def energy(self) -> str:
        """The formula of the energy."""
        return f"k ({self.max_similarity:g} − S)" if self.max_similarity else "−k S"

    def similarity_from_energy(self, energy: float, density_strength: float) -> float:
        """Return S for an energy and its total k, both in kJ/mol; k must not be 0."""
        return self.max_similarity - energy / density_strength


MEASURES = (
    Measure("cross-correlation", "CROSS_CORRELATION", 1.0, compares_widths=True),
    Measure("cross-correlation", "CROSS_CORRELATION_ABOUT_MEAN", 1.0, about_mean=True, compares_widths=True),
    Measure("inner-product", "INNER_PRODUCT", 0.0, divides_by_weight=True),
    Measure("relative-entropy", "RELATIVE_ENTROPY", 0.0, divides_by_weight=True, takes_logarithm=True),
    Measure("least-squares", "LEAST_SQUARES", 1.0, compares_widths=True, can_be_constant=True),
    Measure("map-potential", None, 1.0, divides_by_weight=True, can_be_constant=True),
)

SIMILARITIES = tuple(dict.fromkeys(measure.name for measure in MEASURES))
"""The names that ``similarity=`` takes, the default first."""


def measure_named(similarity: str, *, about_mean: bool = False) -> Measure:
    """Return the measure of a name."""
    if similarity not in SIMILARITIES:
        raise InputError(
            "must be a known measure",
            argument="similarity",
            found=f'"{similarity}"',
            remedy=f"use one of {', '.join(SIMILARITIES)}",
        )
    for measure in MEASURES:
        if (measure.name, measure.about_mean) == (similarity, bool(about_mean)):
            return measure
    having = " or ".join(
        as_argument("similarity", measure.name) for measure in MEASURES if measure.about_mean
    )
    raise InputError(
        f"is for {having}", argument="about_mean", found=f'"{similarity}"', remedy="leave it out"
    )

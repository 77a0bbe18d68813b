"""`BasePairRestraint` and `BasePlaneRestraint`: paired bases keep their hydrogen bonds and stay in one plane."""

from __future__ import annotations

from typing import Any

import numpy as np
import openmm
from openmm import app, unit

from ..base.wording import listing, residue_label
from ..models.chemistry.base_pairs import BasePairs, Bases
from ..models.chemistry.topologies import found_once
from .pairs import AdaptivePairRestraint
from .restraint import Restraint, Violation

BASE_PAIR_FORCE_CONSTANT = 20.0
"""kJ/mol: the most that a hydrogen bond which the density pulls apart costs is 1.5 times this."""
BASE_PLANE_FORCE_CONSTANT = 20.0
"""kJ/mol: the most that a pair which the density turns out of its plane costs."""
SHORTEST, LONGEST = 2.8, 3.0
"""Å; hydrogen bonds of base pairs are held at the length of the start, but within what crystals of nucleotides have."""
FLAT = np.radians(20.0)
"""Angle between the planes of two bases that costs no energy: propellers and buckles."""

NO_VALIDATION = (
    "Base pairs are held as the start has them, so that pairs which are kept are no sign of a good fit."
)

# How steeply the cosine of the angle beyond `FLAT` costs energy; at 50° it is 69% of the most, and still pulls.
_WIDTH = 0.2
_LARGEST_ANGLE = 45.0  # degrees, above which a pair counts as violated


@found_once
def _pairs_of(topology: app.Topology, start: np.ndarray) -> BasePairs:
    """Return the base pairs of a start, which both restraints look for."""
    return Bases(topology).pairs_to_hold(start)


class BasePairRestraint(AdaptivePairRestraint):
    """Hold the hydrogen bonds of base pairs.

    E is that of `DistanceRestraint`, with r₀ the distance between the heavy atoms in the start, at least 2.8 and at most 3.0 Å,
    τ = 0.05 Å and c = 0.35 Å: a bond that the density pulls far off is released. The pairs are those of the start, see
    `openmm_density.models.chemistry.base_pairs.find_base_pairs`, and complementary bases that have all bonds but are tilted, or
    face each other where a helix goes on. A bond counts as violated when it is over 0.75 Å too long.

    ``make_restraints("base-pairs", …)`` builds this and `BasePlaneRestraint`.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
    positions : Quantity or array_like, shape (N, 3)
        Å where plain; they decide what is paired.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`, with its errors; k is in kJ/mol. Chains may be wrapped apart.
    """

    name = "base-pairs"
    default_force_constant = BASE_PAIR_FORCE_CONSTANT
    default_parameter_name = "base_pair_strength"
    tolerance, well, fall_off = 0.017, 0.12, 2.0

    def __init__(
        self, topology: app.Topology, positions: Any, force_constant: Any = None, **common: Any
    ) -> None:
        super().__init__(topology, positions, force_constant, **common)
        found = _pairs_of(self.topology, self.start)
        self.pairs = found.bonds
        self.lengths = np.clip(found.lengths, SHORTEST, LONGEST)
        if self.n_terms:
            self.notes.append(NO_VALIDATION)
        facing = Bases(self.topology).mismatched(found)
        if len(facing):
            residues = list(self.topology.residues())
            names = [" - ".join(residue_label(residues[each]) for each in pair) for pair in facing.tolist()]
            self.notes.append(
                f"In a helix, but not held as pairs, as their sequence forbids it: {listing(names, 5)}. Check whether a strand "
                "is out of register there."
            )


class BasePlaneRestraint(Restraint):
    """Hold the planes of paired bases parallel.

    ``E = k u²/(u² + 0.2²)``, ``u = max(0, cos 20° - |n₁·n₂|)``, with n the normals of rings: propellers and buckles of
    up to 20° are free, and a pair that the density turns far out of its plane is released. A pair counts as violated beyond 45°.

    Parameters
    ----------
    topology, positions, force_constant, parameter_name, force_group, periodic
        As for `BasePairRestraint`, with its errors.
    """

    name = "base-pairs"
    default_force_constant = BASE_PLANE_FORCE_CONSTANT
    force_constant_unit = unit.kilojoule_per_mole
    default_parameter_name = "base_plane_strength"

    def __init__(
        self, topology: app.Topology, positions: Any, force_constant: Any = None, **common: Any
    ) -> None:
        super().__init__(topology, positions, force_constant, **common)
        bases = Bases(self.topology)
        which = np.searchsorted(bases.residues, _pairs_of(self.topology, self.start).residues)
        self.rings = bases.rings[which][:, :, ::2].reshape(-1, 6)
        """Three atoms of the ring of each base, int (P, 6)."""

    @property
    def n_terms(self) -> int:
        """Number of pairs."""
        return len(self.rings)

    def create_force(self) -> openmm.CustomCompoundBondForce:
        """Build the force that ``System.addForce`` takes; each call builds another."""
        lines = [
            f"{self.parameter_name}*u^2/(u^2 + {_WIDTH**2!r})",
            f"u = max(0, {float(np.cos(FLAT))!r} - abs(cosine))",
            "cosine = (nx1*nx2 + ny1*ny2 + nz1*nz2)/sqrt((nx1^2 + ny1^2 + nz1^2)*(nx2^2 + ny2^2 + nz2^2))",
        ]
        for base, (p, q, r) in enumerate(((1, 2, 3), (4, 5, 6)), start=1):
            for a, b, c in ("xyz", "yzx", "zxy"):
                lines.append(
                    f"n{a}{base} = ({b}{q} - {b}{p})*({c}{r} - {c}{p}) - ({c}{q} - {c}{p})*({b}{r} - {b}{p})"
                )
        # Each Context takes 0.2 s for this energy's derivatives, whether or not a pair has it.
        energy = ";".join(lines) if self.n_terms else f"0*{self.parameter_name}"
        force = openmm.CustomCompoundBondForce(6, energy)
        for atoms in self.rings.tolist():
            force.addBond(atoms)
        self._finish(force)
        # Only atoms of one ring are compared, which are never wrapped apart.
        force.setUsesPeriodicBoundaryConditions(False)
        return force

    def violations(self, positions: Any) -> list[Violation]:
        """List the pairs far from one plane, the worst first; see `Restraint.violations`."""
        places = self._checked(positions)[self.rings]
        normals = [np.cross(places[:, k + 1] - places[:, k], places[:, k + 2] - places[:, k]) for k in (0, 3)]
        lengths = np.prod([np.linalg.norm(each, axis=1) for each in normals], axis=0)
        cosines = np.abs(np.einsum("ij,ij->i", *normals)) / np.maximum(lengths, 1e-12)
        angles = np.degrees(np.arccos(np.minimum(cosines, 1.0)))
        quantities = ["angle between the bases"] * len(angles)
        return self._violated(self.rings, angles, np.zeros(len(angles)), _LARGEST_ANGLE, quantities, "°")

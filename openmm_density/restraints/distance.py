"""`DistanceRestraint`: distances of the start or of another model, held until the density pulls them far off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from openmm import app

from ..base.errors import InputError
from ..base.units import as_number, positions_in_angstrom, takes_units
from ..models.chemistry.backbone import NamedAtoms, atoms_by_name, trace_atom
from ..models.matching import match_alpha_carbons
from .elastic_network import near_pairs
from .pairs import AdaptivePairRestraint, distances

DISTANCE_FORCE_CONSTANT = 10.0
"""kJ/mol: a broken restraint costs 1.3 to 2 times this, no more."""
DISTANCE_CUTOFF = 8.0
"""Å."""
TOLERANCE = 0.025
"""Half the width of the flat bottom, as a part of the length."""
WELL = 0.1
"""Half the width of the harmonic well beyond it, as a part of the length."""
FALL_OFF = 2.0
"""How much faster the loss of long distances levels off than that of short ones."""

# Pairs within a residue are left out, as they do not depend on the fold. These atoms define backbone, rotamer and base pairing.
_PROTEIN_ATOMS = ("CA", "CB", "CG", "CG1", "SG", "OG", "OG1")
_NUCLEIC_ATOMS = ("P", "C1'", "C4'", "N1", "N2", "N3", "N4", "N6", "O2", "O4", "O6")


class DistanceRestraint(AdaptivePairRestraint):
    """Hold the distances between near residues; a pair that the density pulls far off its distance is released.

    These are the adaptive distance restraints of ISOLDE (T. I. Croll, Acta Cryst. D74, 519 (2018), and its documentation of
    ``isolde restrain distances``), with Barron's general loss (J. T. Barron, CVPR 2019, eq. 1)::

        E = k (2 - α)/α [(1 + (ρ/c)²/(2 - α))^(α/2) - 1],   ρ = max(0, |r - r₀| - τ)

    It is flat within the tolerance τ = 0.025 r₀, a spring of k/c² up to about c = 0.1 r₀ beyond it, and then levels off at
    k (α - 2)/α, so that a pair which is pulled out of its well has next to no force. α = -2 - fall_off · ln(r₀ in Å): long
    distances, which are less certain, are released sooner. A distance counts as violated beyond τ + 2 c, where its force is
    small.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
    positions : Quantity or array_like, shape (N, 3)
        Å where plain.
    reference : Model or pair of topology and positions, optional
        Another model (`openmm_density.models.read_model`) to take the lengths from, in place of the start. Residues are
        paired as `openmm_density.models.matching.match_alpha_carbons` does, atoms by name; no superposition is needed.
    cutoff : float or Quantity
        In Å; the longest distance that is held.
    tolerance, well : float
        τ and c as parts of r₀.
    fall_off : float
        Zero or more.
    between_chains : bool
        Whether distances between chains are held, too.
    expected_error : callable, optional
        Called with the residues of each pair, int (P,) and (P,); returns by how much its distance may be off, in Å: c is that at
        least. A pair with an infinite one is not held.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`; k is in kJ/mol. Chains may be wrapped apart.

    Raises
    ------
    InputError
        The numbers of atoms differ, a position is not a number, a number is out of its range, or the reference has fewer than 3
        residues in common with the model.
    """

    name = "distance"
    default_force_constant = DISTANCE_FORCE_CONSTANT
    default_parameter_name = "distance_restraint_strength"

    @takes_units("positions", "cutoff")
    def __init__(
        self,
        topology: app.Topology,
        positions: Any,
        force_constant: Any = None,
        *,
        reference: Any = None,
        cutoff: Any = DISTANCE_CUTOFF,
        tolerance: float = TOLERANCE,
        well: float = WELL,
        fall_off: float = FALL_OFF,
        between_chains: bool = True,
        expected_error: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(topology, positions, force_constant, **common)
        reach = as_number(cutoff, "cutoff")
        self.tolerance = as_number(tolerance, "tolerance")
        self.well = as_number(well, "well")
        self.fall_off = as_number(fall_off, "fall_off")
        for name, value, least, default in (
            ("cutoff", reach, 1.0, f"Å, such as {DISTANCE_CUTOFF:g}"),
            ("tolerance", self.tolerance, 0.0, f"a part of the length, such as {TOLERANCE:g}"),
            ("well", self.well, 1e-3, f"a part of the length, such as {WELL:g}"),
            ("fall_off", self.fall_off, 0.0, f"a number such as {FALL_OFF:g}"),
        ):
            if not (np.isfinite(value) and value >= least):
                raise InputError(
                    f"must be {least:g} or more", argument=name, found=value, remedy=f"give {default}"
                )
        own, other, measured = self._matched(reference)
        near = near_pairs(measured[other], reach)
        residues = np.array([self._atoms[atom].residue.index for atom in own])
        chains = np.array([self._atoms[atom].residue.chain.id for atom in own])
        keep = residues[near[:, 0]] != residues[near[:, 1]]
        if not between_chains:
            keep &= chains[near[:, 0]] == chains[near[:, 1]]
        near = near[keep]
        errors = np.zeros(len(near)) if expected_error is None else expected_error(*residues[near].T)
        near, self._errors = near[np.isfinite(errors)], errors[np.isfinite(errors)]
        self.pairs = own[near]
        # Two atoms of a bad model may have one position, and no well may have a width of zero.
        self.lengths = np.maximum(distances(measured, other[near]), 1.0)

    def _matched(self, reference: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the atoms, those of the model to take the lengths from, and its positions."""
        residues = [names for names in atoms_by_name(self.topology) if trace_atom(names) is not None]
        if reference is None:
            own = np.array([atom for names in residues for atom in _chosen(names)], dtype=np.int64)
            return own, own, self.start
        topology, positions = (
            reference if isinstance(reference, tuple) else (reference.topology, reference.positions)
        )
        measured = positions_in_angstrom(positions)
        if len(measured) != topology.getNumAtoms() or not np.isfinite(measured).all():
            raise InputError(
                "must have a finite position for each atom of its topology",
                argument="reference",
                remedy="give a whole model, as read_model reads it",
            )
        try:
            index, reference_index = match_alpha_carbons(
                self.topology, topology, positions=self.start, reference_positions=measured
            )
        except InputError as error:
            raise error.within(getattr(reference, "path", "reference")) from None
        by_residue = {names.residue: names for names in residues}
        others = {names.residue: names for names in atoms_by_name(topology)}
        reference_atoms = list(topology.atoms())
        pairs = []
        for atom, other in zip(index, reference_index):
            names = by_residue[self._atoms[atom].residue]
            counterpart = others[reference_atoms[other].residue]
            pairs += [
                (k, counterpart[self._atoms[k].name])
                for k in _chosen(names)
                if self._atoms[k].name in counterpart
            ]
        matched = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return matched[:, 0], matched[:, 1], measured

    def _wells(self) -> np.ndarray:
        return np.maximum(super()._wells(), self._errors)


def _chosen(names: NamedAtoms) -> list[int]:
    wanted = _NUCLEIC_ATOMS if "CA" not in names else _PROTEIN_ATOMS
    return [names[name] for name in wanted if name in names]

"""`SymmetryRestraint`: the copies of a chain stay alike, and all of them are fitted."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any

import gemmi
import numpy as np
import openmm
from openmm import app, unit

from ..base.units import positive, takes_units
from ..models.chemistry.backbone import NamedAtoms, atoms_by_name, chains, is_nucleotide, trace_atom
from .elastic_network import near_pairs
from .pairs import distances
from .restraint import Restraint, Violation

SYMMETRY_FORCE_CONSTANT = 1000.0
"""kJ/mol/nm²: a distance that is 1 Å off the mean of the copies costs 5 kJ/mol."""
SYMMETRY_WIDTH = 2.0
"""Å between two copies from which their difference is taken to be real."""
SYMMETRY_LIMIT = 1.0
"""Å off the mean of the copies from which a distance counts as violated."""
IDENTITY = 0.95
"""The part of the residues that copies have in common which must have the same name."""
OVERLAP = 0.6
"""The part of the shorter chain that its copy must have."""
SHORTEST = 5
"""Residues of the shortest chain that is taken for a copy: peptides of a few residues are alike by chance."""
REACH = 10.0
"""Å; the longest distance between the residues of one chain that is compared."""
FAR_NEIGHBOURS = 3
"""Residues, not near in sequence, to which each keeps its distance."""
ALL_PAIRS = 5
"""Up to so many copies, each is compared with each."""

# Atoms that define the rotamer, of those that have one name in every copy: CD1 and CD2 may be swapped.
_SIDE_CHAINS = {
    "ARG": ("CG", "CZ"), "ASN": ("CG",), "ASP": ("CG",), "CYS": ("SG",), "GLN": ("CG", "CD"), "GLU": ("CG", "CD"),
    "HIS": ("CG",), "ILE": ("CG1", "CD1"), "LEU": ("CG", "CD1"), "LYS": ("CG", "NZ"), "MET": ("CG", "CE"),
    "PHE": ("CG", "CZ"), "PRO": ("CG",), "SER": ("OG",), "THR": ("OG1",), "TRP": ("CG", "CH2"), "TYR": ("CG", "OH"),
    "VAL": ("CG1",),
}  # fmt: skip
_NUCLEOTIDE_ANCHORS = ("P", "C4'", "C1'")
_BASE_MARKS = ("N9", "N1", "C2", "C6")


class SymmetryRestraint(Restraint):
    """Keep the copies of a chain alike inside, wherever they are (non-crystallographic symmetry).

    Copies are chains of one sequence; gaps, missing atoms, other numbers and a few mutations do not matter. What is kept alike
    are distances d within the chain: between Cα (C1') up to 10 Å apart, which hold the fold, and from one or two atoms of each
    side chain or base to the backbone of its residue, which hold the rotamer. For each distance and its n copies

        E = ½ k Σ_c (d_c - d̄)² = k/(2n) Σ_{c<c'} (d_c - d_c')².

    The force is that of the right-hand side, a term of four atoms for each pair of copies, which draws each copy to the mean of
    all. No copy is the master: all are fitted, and the density's forces on them are averaged. No superposition is needed, so
    the copies may move against each other. k is the Context parameter.

    The force of a pair falls off, as in the local NCS restraints of REFMAC (Geman and McClure's function), where its copies
    differ by more than ``width``: ½ k Δ²/(1 + (Δ/width)²)/n. So real differences stay. A distance counts as violated when it is
    1 Å off the mean of its copies.

    A term takes 0.4 µs of a CPU, and n copies have n(n - 1)/2 of them for a distance; a single term with the mean of all copies
    costs n², too. So from 6 copies on each is compared with the next in a circle and with the one about √n further on,
    weighted to the same mean stiffness. PyTorch would sum in less time, but its threads keep a core busy while OpenMM needs it.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
    positions : Quantity or array_like, shape (N, 3)
        Å where plain; they decide which distances are compared.
    width : float, Quantity or None
        In Å; None for terms that stay harmonic.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`; k is in kJ/mol/nm².

    Attributes
    ----------
    groups : list of tuple of str
        The ids of the chains that are copies of each other.
    sites : list of np.ndarray of int, shape (n, 2)
        The pairs of atoms of one distance in its n copies.

    Raises
    ------
    InputError
        The numbers of atoms differ, a position is not a number, or force constant or width is negative.
    """

    name = "symmetry"
    default_force_constant = SYMMETRY_FORCE_CONSTANT
    default_parameter_name = "symmetry_strength"
    force_constant_unit = unit.kilojoule_per_mole / unit.nanometer**2

    @takes_units("positions", "width")
    def __init__(
        self,
        topology: app.Topology,
        positions: Any,
        force_constant: Any = None,
        *,
        width: Any = SYMMETRY_WIDTH,
        **common: Any,
    ) -> None:
        super().__init__(topology, positions, force_constant, **common)
        example = f"Å, such as {SYMMETRY_WIDTH:g}, or None"
        self.width = None if width is None else positive(width, "width", example)
        residues = atoms_by_name(self.topology)
        self.groups: list[tuple[str, ...]] = []
        self.sites: list[np.ndarray] = []
        for copies in find_copies(residues):
            self.groups.append(tuple(residues[copy[copy >= 0][0]].residue.chain.id or "" for copy in copies))
            self.sites += self._sites_of(residues, copies)
        if not self.groups:
            self.notes.append("no two chains have one sequence, so there is nothing to keep alike")

    @property
    def n_terms(self) -> int:
        """Number of distances, each with its copies."""
        return len(self.sites)

    def create_force(self) -> openmm.CustomCompoundBondForce:
        """Build the force that ``System.addForce`` takes; each call builds another."""
        loss = "apart^2" if self.width is None else f"apart^2/(1 + (apart/{self.width / 10.0!r})^2)"
        force = openmm.CustomCompoundBondForce(
            4, f"0.5*{self.parameter_name}*weight*{loss}; apart = distance(p1, p2) - distance(p3, p4)"
        )
        force.addPerBondParameter("weight")
        for site in self.sites:
            atoms = site.tolist()
            compared, weight = _compared(len(atoms))
            for a, b in compared:
                force.addBond([*atoms[a], *atoms[b]], [weight])
        return self._finish(force)

    def violations(self, positions: Any) -> list[Violation]:
        """List the distances that differ from the mean of their copies, the worst first; see `Restraint.violations`."""
        positions = self._checked(positions)
        if not self.sites:
            return []
        atoms = np.concatenate(self.sites)
        sizes = np.array([len(site) for site in self.sites])
        found = distances(positions, atoms)
        means = np.add.reduceat(found, np.cumsum(sizes) - sizes) / sizes
        quantities = [f"{self._atoms[i].name} to {self._atoms[j].name}" for i, j in atoms.tolist()]
        return self._violated(atoms, found, np.repeat(means, sizes), SYMMETRY_LIMIT, quantities, "Å")

    def _sites_of(self, residues: list[NamedAtoms], copies: list[np.ndarray]) -> list[np.ndarray]:
        """Return the distances to keep alike, each with its copies: at least two have all atoms of it."""
        pattern = max(copies, key=lambda copy: int((copy >= 0).sum()))
        columns = np.flatnonzero(pattern >= 0)
        traces = self.start[[trace_atom(residues[r]) for r in pattern[columns]]]
        wanted = [((columns[a], None), (columns[b], None)) for a, b in _near_residues(traces)]
        for column in columns:
            own = residues[pattern[column]]
            marks, anchors = _marks(own)
            wanted += [
                ((column, mark), (column, anchor)) for mark in marks for anchor in anchors if mark != anchor
            ]
        sites = []
        for ends in wanted:
            found = [pair for copy in copies if (pair := _find_pair(residues, copy, ends)) is not None]
            if len(found) > 1:
                sites.append(np.array(found, dtype=np.int64))
        return sites


def find_copies(residues: list[NamedAtoms]) -> list[list[np.ndarray]]:
    """Return for each group of chains of one sequence its copies' residues by column of the longest copy, -1 for none."""
    groups: list[tuple[np.ndarray, list[np.ndarray]]] = []
    found = [chain for chain in chains(residues) if len(chain) >= SHORTEST]
    for chain in sorted(found, key=len, reverse=True):
        for first, copies in groups:
            same = _aligned_residues(residues, first, chain)
            if same is not None:
                copies.append(same)
                break
        else:
            groups.append((chain, [chain]))
    return [sorted(copies, key=lambda copy: copy.max()) for _, copies in groups if len(copies) > 1]


def _aligned_residues(residues: list[NamedAtoms], first: np.ndarray, chain: np.ndarray) -> np.ndarray | None:
    """Return the chain's residue for each of the first, by numbers, else by sequence; None where it is no copy."""
    numbers = {_number(residues[r]): r for r in chain}
    by_number = np.array([numbers.get(_number(residues[r]), -1) for r in first])
    if _is_copy(residues, first, by_number, len(chain)):
        return by_number
    shared = Counter(residues[r].residue.name for r in first) & Counter(
        residues[r].residue.name for r in chain
    )
    if shared.total() < OVERLAP * IDENTITY * len(chain):
        return None  # no alignment can have enough in common
    by_sequence = _aligned(residues, first, chain)
    return by_sequence if _is_copy(residues, first, by_sequence, len(chain)) else None


def _number(names: NamedAtoms) -> tuple[str, str]:
    return names.residue.id, names.residue.insertionCode


def _is_copy(residues: list[NamedAtoms], first: np.ndarray, copy: np.ndarray, length: int) -> bool:
    both = copy >= 0
    if both.sum() < OVERLAP * length:
        return False
    same = [residues[a].residue.name == residues[b].residue.name for a, b in zip(first[both], copy[both])]
    return sum(same) >= IDENTITY * len(same)


def _aligned(residues: list[NamedAtoms], first: np.ndarray, chain: np.ndarray) -> np.ndarray:
    names = [[residues[r].residue.name for r in members] for members in (first, chain)]
    # Unrelated residues count against an alignment, so that names other than amino acids' serve as well.
    cigar = gemmi.align_string_sequences(*names, [], gemmi.AlignmentScoring("s")).cigar_str()
    result = np.full(len(first), -1)
    i = j = 0
    for count, kind in re.findall(r"(\d+)([MID])", cigar):
        steps = int(count)
        if kind == "M":
            result[i : i + steps] = chain[j : j + steps]
        i += steps if kind in "MI" else 0
        j += steps if kind in "MD" else 0
    return result


def _near_residues(traces: np.ndarray) -> list[tuple[int, int]]:
    """Return the pairs of residues two and four apart in the chain, and of each with its nearest others."""
    pairs = near_pairs(traces, REACH)
    apart = pairs[:, 1] - pairs[:, 0]
    chosen = {tuple(pair) for pair in pairs[(apart == 2) | (apart == 4)].tolist()}
    far = pairs[apart > 4]
    length = np.linalg.norm(traces[far[:, 0]] - traces[far[:, 1]], axis=1)
    taken: Counter[int] = Counter()
    for a, b in far[np.argsort(length, kind="stable")].tolist():
        if min(taken[a], taken[b]) < FAR_NEIGHBOURS:
            chosen.add((a, b))
            taken.update((a, b))
    return sorted(chosen)


def _marks(names: NamedAtoms) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the atoms that define a residue's conformation, and those to which their distances are compared."""
    if is_nucleotide(names):
        return _BASE_MARKS, _NUCLEOTIDE_ANCHORS
    return _SIDE_CHAINS.get(names.residue.name, ()), ("N", "CA", "C")


def _find_pair(
    residues: list[NamedAtoms], copy: np.ndarray, ends: tuple[tuple[int, str | None], ...]
) -> tuple[int, int] | None:
    found = []
    for column, name in ends:
        if copy[column] < 0:
            return None
        names = residues[copy[column]]
        atom = trace_atom(names) if name is None else names.get(name)
        if atom is None:
            return None
        found.append(atom)
    return found[0], found[1]


@cache
def _compared(n_copies: int) -> tuple[list[tuple[int, int]], float]:
    """Return the pairs of copies that are compared, and the weight that gives each the stiffness k against the mean."""
    if n_copies <= ALL_PAIRS:
        return [(a, b) for b in range(n_copies) for a in range(b)], 1.0 / n_copies
    jumps = (1, round(n_copies**0.5))
    pairs = {tuple(sorted((a, (a + jump) % n_copies))) for a in range(n_copies) for jump in jumps}
    # The graph's eigenvalues, that of the mean being 0, have twice the number of edges as their sum.
    return sorted(pairs), (n_copies - 1) / (2.0 * len(pairs))

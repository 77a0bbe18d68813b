"""Match the residues of two models, and measure how far apart the models are."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import gemmi
import mdtraj
import numpy as np
from openmm import app

from ..base.errors import InputError
from ..base.units import positions_in_angstrom, takes_units
from .chemistry.residue_names import name_tables
from .chemistry.residues import residue_kind

FEWEST_PAIRS = 3
# Share of identical residues from which two chains count as related. Aligned in this way, unrelated proteins
# reach 0.30, and α and β haemoglobin have 0.46; of nucleotides, with four letters, half agree by chance.
LEAST_IDENTITY = {"protein": 0.35, "nucleic": 0.7}
# At this distance (Å) a chain's score is halved: enough to reject an adjacent copy, too little to prefer a merely related chain.
DISTANCE_SCALE = 100.0
# Å between the centroids of ligands that stand for one another.
LIGAND_REACH = 8.0


@takes_units("positions", "reference_positions")
def match_alpha_carbons(
    topology: app.Topology | mdtraj.Topology,
    reference_topology: app.Topology | mdtraj.Topology,
    *,
    positions: Any = None,
    reference_positions: Any = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Pair the Cα atoms of two models; of nucleotides P, or C1′ where either has no P.

    Residues are paired by chain id, number and insertion code; where fewer than half of the shorter model's
    match so, or most of those that do have different names, by number with the chains in their order; else
    by aligning the sequences of the chains, each chain with the one most like it. Copies of one chain with
    different ids in the two models can only be told apart by position: give positions then.

    Parameters
    ----------
    topology, reference_topology : openmm.app.Topology or mdtraj.Topology
        The two models.
    positions, reference_positions : Quantity or array_like, shapes (N, 3) and (M, 3), optional
        Cartesian positions in Å, both in one frame. Where chain ids do not identify chains, similar
        chains are then paired with the nearest.

    Returns
    -------
    indices, reference_indices : np.ndarray of int, shape (n_pairs,)
        Atoms of the first and of the second topology, in the order of the first.

    Raises
    ------
    InputError
        If fewer than 3 residues can be paired.
    """
    models = [
        [residue for residue in residues_of(given) if residue.traces]
        for given in (topology, reference_topology)
    ]
    places = None
    if positions is not None and reference_positions is not None:
        places = positions_in_angstrom(positions), positions_in_angstrom(reference_positions)
    pairs = _matched(*models, places)
    atoms, reference_atoms = _atoms(pairs)
    if len(atoms) < FEWEST_PAIRS:
        raise InputError(
            f"the models have {len(models[0])} and {len(models[1])} residues with Cα or P, of which at least "
            f"{FEWEST_PAIRS} must be paired by chain, number or sequence",
            found=f"{len(atoms)} pairs",
            remedy="give a reference of the same molecule",
        )
    order = np.argsort(atoms)
    return atoms[order], reference_atoms[order]


def match_ligands(
    topology: app.Topology, reference_topology: app.Topology, positions: Any, reference_positions: Any
) -> list[tuple[int, int]]:
    """Pair the ligands and ions of two models: those with the same name in the same place.

    `positions`, `reference_positions` (N, 3): Cartesian positions in Å, both in one frame. Returns indices of residues
    in the first and in the second topology, in the order of the first. Each is in one pair at most, and the centroids
    of a pair are within 8 Å; of all pairings, the one with the least distances is chosen.
    """
    first, second = (
        _ligand_centroids(*model)
        for model in (
            (topology, positions_in_angstrom(positions)),
            (reference_topology, positions_in_angstrom(reference_positions)),
        )
    )
    pairs = []
    for name in first.keys() & second.keys():
        residues, reference_residues = list(first[name]), list(second[name])
        places, reference_places = (np.array(list(each[name].values())) for each in (first, second))
        distances = np.linalg.norm(places[:, None] - reference_places, axis=2)
        # Beyond the limit all pairs cost the same, so that they do not break up others.
        for row, column in zip(*_assignment(np.minimum(distances, LIGAND_REACH))):
            if distances[row, column] < LIGAND_REACH:
                pairs.append((residues[row], reference_residues[column]))
    return sorted(pairs)


def _ligand_centroids(topology: app.Topology, positions: np.ndarray) -> dict[str, dict[int, np.ndarray]]:
    """Return the centroids of ligands and ions, by name and place of the residue."""
    found: dict[str, dict[int, np.ndarray]] = {}
    for residue in topology.residues():
        if residue_kind(residue) == "other":
            atoms = [atom.index for atom in residue.atoms()]
            found.setdefault(residue.name, {})[residue.index] = positions[atoms].mean(axis=0)
    return found


@takes_units("positions", "reference_positions")
def ca_rmsd(positions: Any, reference_positions: Any, pairs: tuple[Sequence[int] | np.ndarray, ...]) -> float:
    """Return the root mean square distance of paired atoms in Å, without superposition.

    Parameters
    ----------
    positions, reference_positions : Quantity or array_like, shapes (N, 3) and (M, 3)
        Cartesian positions in Å. (Those of an ``mdtraj.Trajectory`` are in nm.)
    pairs : tuple of two np.ndarray of int
        Indices into both, as `match_alpha_carbons` gives them.
    """
    indices, reference_indices = pairs
    difference = (
        positions_in_angstrom(positions)[indices]
        - positions_in_angstrom(reference_positions)[reference_indices]
    )
    return float(np.sqrt((difference**2).sum(axis=1).mean()))


def _matched(
    residues: list[Residue],
    reference_residues: list[Residue],
    places: tuple[np.ndarray, np.ndarray] | None,
) -> list[tuple[Residue, Residue]]:
    models = residues, reference_residues
    enough = max(0.5 * min(map(len, models)), FEWEST_PAIRS)
    by_id = _paired_by(_by_chain_id, *models)
    if len(by_id) >= enough and _identity(by_id) >= 0.5:
        return by_id
    by_order = _paired_by(_by_chain_order, *models)
    if len(by_order) >= enough and _identity(by_order) >= 0.5:
        if places is None:
            return by_order
        aligned = _paired_by_alignment(*models, places)
        # The order of the chains hardly identifies copies; their positions do.
        is_nearer = len(aligned) >= 0.9 * len(by_order) and _rmsd(aligned, places) < _rmsd(by_order, places)
        return aligned if is_nearer else by_order
    # Names that differ everywhere mean either another numbering, which an alignment finds, or a model without
    # its sequence (poly-alanine), for which the numbers are all there is.
    if not all(map(_has_sequence, models)):
        for by_number in (by_id, by_order):
            if len(by_number) >= enough:
                return by_number
    return _paired_by_alignment(*models, places)


def _rmsd(pairs: list[tuple[Residue, Residue]], places: tuple[np.ndarray, np.ndarray]) -> float:
    return ca_rmsd(*places, _atoms(pairs))


def _atoms(pairs: list[tuple[Residue, Residue]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the atoms that represent paired residues, without pairs that have no such atom in common."""
    atoms = np.array(
        [(a.traces[name], b.traces[name]) for a, b in pairs for name in [_common_trace(a, b)] if name],
        dtype=np.int64,
    ).reshape(-1, 2)
    return atoms[:, 0], atoms[:, 1]


def _common_trace(a: Residue, b: Residue) -> str | None:
    return next((name for name in a.traces if name in b.traces), None)


class Residue(NamedTuple):
    """A residue of either library's topology, with the atoms that can represent it."""

    name: str
    chain: str
    number: str
    insertion_code: str
    place: tuple[str, str]
    copy: int
    chain_order: int
    letter: str
    traces: dict[str, int]

    @property
    def label(self) -> str:
        """As in ``A HIS 57``."""
        return " ".join(f"{self.chain} {self.name} {self.number}{self.insertion_code}".split())


def residues_of(topology: app.Topology | mdtraj.Topology) -> list[Residue]:
    """Return the residues of a topology, in its order, with what identifies each and the atoms of its trace."""
    of_mdtraj = isinstance(topology, mdtraj.Topology)
    residues: list[Residue] = []
    # read_model starts a new chain at every gap, so chains that share an id are one chain until a residue number comes
    # twice: then they are copies, in a file that does not name its chains.
    copies: dict[str, list[set[tuple[str, str]]]] = {}
    orders: dict[tuple[str, int], int] = {}
    previous: tuple[str, str, str] | None = None
    for residue in topology.residues if of_mdtraj else topology.residues():
        if of_mdtraj:
            chain, number = residue.chain.chain_id or "", str(residue.resSeq)
            insertion_code, atoms = getattr(residue, "insertion_code", ""), residue.atoms
        else:
            chain, number = residue.chain.id or "", residue.id
            insertion_code, atoms = residue.insertionCode, residue.atoms()
        insertion_code = insertion_code.strip()
        letter = _letter(residue.name)
        traces = _traces(letter, {atom.name: atom for atom in atoms})
        place, copy, order = (number, insertion_code), -1, -1
        if traces:
            if (chain, number, insertion_code) == previous:
                # An insertion whose code mdtraj has lost gets a number of its own, unlike any with a code.
                place = (number, f"after {len(residues)}")
            else:
                previous = (chain, number, insertion_code)
            used = copies.setdefault(chain, [set()])
            if place in used[-1]:
                used.append(set())
            used[-1].add(place)
            copy = len(used) - 1
            order = orders.setdefault((chain, copy), len(orders))
        residues.append(
            Residue(residue.name, chain, number, insertion_code, place, copy, order, letter, traces)
        )
    return residues


@functools.cache
def _letter(name: str) -> str:
    """Return the kind of polymer and the letter of a residue, as in ``protein H``; empty for other residues."""
    aliases, _ = name_tables()
    tabulated = gemmi.find_tabulated_residue(aliases.get(name, name))
    if tabulated.is_amino_acid():
        return f"protein {tabulated.one_letter_code.upper()}"
    if tabulated.is_nucleic_acid():
        return f"nucleic {tabulated.one_letter_code.upper()}"
    return ""


def _traces(letter: str, atoms: dict[str, Any]) -> dict[str, int]:
    """List the atoms that can represent a residue; none for residues outside polymers."""
    is_protein = letter.startswith("protein") or (not letter and {"N", "CA", "C"} <= atoms.keys())
    names = ("CA",) if is_protein else ("P", "C1'", "C1*") if letter else ()
    # A calcium ion is called CA as well, but is no residue of a protein.
    return {name.replace("*", "'"): atoms[name].index for name in names if name in atoms}


def _by_chain_id(residue: Residue) -> tuple[Any, ...]:
    return residue.chain, residue.copy, residue.place


def _by_chain_order(residue: Residue) -> tuple[Any, ...]:
    return residue.chain_order, residue.place


def _paired_by(
    key: Callable[[Residue], tuple[Any, ...]], residues: list[Residue], reference_residues: list[Residue]
) -> list[tuple[Residue, Residue]]:
    references = {key(residue): residue for residue in reference_residues}
    return [(residue, references[key(residue)]) for residue in residues if key(residue) in references]


def _identity(pairs: list[tuple[Residue, Residue]]) -> float:
    """Return the fraction of pairs with the same name; unknown residues count as the same."""
    same = [
        a.letter == b.letter or not a.letter or not b.letter or "X" in (a.letter[-1], b.letter[-1])
        for a, b in pairs
    ]
    return sum(same) / max(len(same), 1)


def _has_sequence(residues: list[Residue]) -> bool:
    counts = Counter(residue.letter for residue in residues)
    return max(counts.values(), default=0) < 0.5 * len(residues)


def _paired_by_alignment(
    residues: list[Residue],
    reference_residues: list[Residue],
    places: tuple[np.ndarray, np.ndarray] | None,
) -> list[tuple[Residue, Residue]]:
    chains, reference_chains = [
        [[residue for residue in given if residue.chain_order == order] for order in orders]
        for given, orders in (
            (given, sorted({residue.chain_order for residue in given}))
            for given in (residues, reference_residues)
        )
    ]
    if not chains or not reference_chains:
        return []
    likeness = np.zeros((len(chains), len(reference_chains)))
    alignments: dict[tuple[int, int], list[tuple[Residue, Residue]]] = {}
    for i, chain in enumerate(chains):
        for j, reference in enumerate(reference_chains):
            kind = _kind(chain)
            if kind != _kind(reference):
                continue
            result = gemmi.align_string_sequences(
                _sequence(chain),
                _sequence(reference),
                [],
                gemmi.AlignmentScoring("b" if kind == "protein" else "s"),
            )
            if result.match_count < LEAST_IDENTITY[kind] * min(len(chain), len(reference)):
                continue
            alignments[i, j] = [(chain[k], reference[m]) for k, m in _aligned(result.cigar_str())]
            likeness[i, j] = result.match_count
            if places is None:
                # Copies of one chain are equally similar: the same id counts more, then the same place.
                likeness[i, j] += 0.5 * (chain[0].chain == reference[0].chain) + 0.25 * (i == j)
            else:
                likeness[i, j] /= 1 + _rmsd(alignments[i, j], places) / DISTANCE_SCALE
    assignment = zip(*_assignment(likeness, maximize=True))
    return [pair for i, j in assignment if (i, j) in alignments for pair in alignments[i, j]]


def _assignment(costs: np.ndarray, maximize: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of the pairs that cost least together."""
    from scipy.optimize import linear_sum_assignment  # imports much that scoring a model does not need

    return linear_sum_assignment(costs, maximize=maximize)


def _kind(chain: list[Residue]) -> str:
    return "nucleic" if any(residue.letter.startswith("nucleic") for residue in chain) else "protein"


def _sequence(chain: list[Residue]) -> list[str]:
    """Return letters for nucleotides, and standard names for amino acids, as BLOSUM62 needs."""
    letters = [residue.letter[-1:] or "X" for residue in chain]
    if _kind(chain) == "nucleic":
        return letters
    return [gemmi.expand_one_letter(letter, gemmi.ResidueKind.AA) or "UNK" for letter in letters]


def _aligned(cigar: str) -> Iterator[tuple[int, int]]:
    """List the aligned positions of two sequences; I is a residue of the first alone, D of the second."""
    i = j = 0
    for count, kind in re.findall(r"(\d+)([MID])", cigar):
        steps = int(count)
        if kind == "M":
            yield from ((i + k, j + k) for k in range(steps))
        i += steps if kind in "MI" else 0
        j += steps if kind in "MD" else 0

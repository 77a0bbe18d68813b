"""Trajectories against a map and against a reference model, on mdtraj."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gemmi
import mdtraj
import numpy as np
from openmm import app
from scipy.optimize import linear_sum_assignment

from openmm_density.correlation import MapCorrelation
from openmm_density.errors import InputError
from openmm_density.fsc import ShellCorrelation, model_fsc
from openmm_density.q_score import SIGMA, QScores, q_scores
from openmm_density.structures import CIF_SUFFIXES, PDB_SUFFIXES, name_tables, read_model
from openmm_density.units import ANGSTROM_PER_NANOMETER, in_angstrom, positions_in_angstrom

if TYPE_CHECKING:
    from openmm_density.maps import DensityMap
    from openmm_density.structures import Model

TRAJECTORY_SUFFIXES = (
    *(".dcd", ".xtc", ".trr", ".nc", ".ncdf", ".netcdf", ".h5", ".hdf5", ".lh5", ".gsd", ".gro"),
    *(".xyz", ".xyz.gz", ".mdcrd", ".crd", ".inpcrd", ".rst7", ".ncrst", ".restrt", ".lammpstrj"),
)
SUFFIXES_WITH_TOPOLOGY = (".h5", ".hdf5", ".lh5", ".gro", ".gsd")
TOPOLOGY_SUFFIXES = (*SUFFIXES_WITH_TOPOLOGY, ".prmtop", ".parm7", ".prm7", ".psf", ".mol2")

Progress = Callable[[int, int], None]

FEWEST_PAIRS = 3
# Share of identical residues from which two chains count as related. Aligned in this way, unrelated proteins
# reach 0.30, and α and β haemoglobin have 0.46; of nucleotides, with four letters, half agree by chance.
LEAST_IDENTITY = {"protein": 0.35, "nucleic": 0.7}
# At this distance (Å) a chain counts half: a copy next door is refused, a related chain in the right place is not taken.
DISTANCE_SCALE = 100.0


@dataclass(frozen=True)
class Scores:
    """Correlations of the frames of a trajectory with a map.

    Attributes
    ----------
    resolution : float
        The resolution in Å at which the model's density was cut.
    frames : ndarray of int, shape (n_frames,)
        The scored frames, counted from 0 in the trajectory.
    times : ndarray of float, shape (n_frames,)
        Their times in ps, as the trajectory has them.
    cc_mask : ndarray of float, shape (n_frames,)
        The correlation over the voxels within 3 Å of a non-hydrogen atom.
    residue_correlations : ndarray of float, shape (n_frames, n_residues)
        The same around every residue alone; NaN where it is undefined.
    residue_labels : tuple of str
        Chain, name and number of every residue, as in ``A HIS 57B``.
    """

    resolution: float
    frames: np.ndarray
    times: np.ndarray
    cc_mask: np.ndarray
    residue_correlations: np.ndarray
    residue_labels: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Give plain lists and numbers for JSON; an undefined correlation is None."""
        residues = self.residue_correlations.astype(object)
        residues[np.isnan(self.residue_correlations)] = None
        return {
            "resolution": self.resolution,
            "frames": self.frames.tolist(),
            "times": self.times.tolist(),
            "cc_mask": self.cc_mask.tolist(),
            "residue_labels": list(self.residue_labels),
            "residue_correlations": residues.tolist(),
        }


def load_trajectory(
    path: str | os.PathLike[str], topology_path: str | os.PathLike[str] | None = None
) -> mdtraj.Trajectory:
    """Read a model, or a trajectory whose atoms another file names.

    A model (PDB or mmCIF, also gzipped) is read as `openmm_density.structures.read_model` reads it; of a file
    with several models each is a frame. Everything else is read by mdtraj. Residues that come from a PDB or
    mmCIF file keep their insertion code in an attribute ``insertion_code``, which mdtraj itself does not
    have: it is lost where mdtraj copies the topology (slices of the trajectory do).

    Parameters
    ----------
    path : str or path-like
        The model (.pdb, .ent, .cif, .mmcif, or one of these and .gz) or the trajectory (.dcd, .xtc, .nc,
        .h5 and others).
    topology_path : str or path-like, optional
        Names the atoms of the trajectory: a model of the same atoms in the same order, or a topology that
        mdtraj reads (.prmtop, .psf, ...). Not needed for formats that have one (.h5, .gro).

    Returns
    -------
    mdtraj.Trajectory
        Positions in nm, as mdtraj has them. They are not made whole nor moved to another periodic image.

    Raises
    ------
    InputError
        The file is missing, cannot be read or has an unknown format, the topology is missing, or the
        numbers of atoms differ.
    """
    path = Path(path)
    if _is_model(path):
        trajectory = _frames_of_model(read_model(path))
        if topology_path is not None:
            topology = _load_topology(Path(topology_path))
            _check_atom_counts(path, trajectory.n_atoms, topology_path, topology.n_atoms)
            trajectory.topology = topology
        return trajectory
    suffix = _suffix(path)
    if suffix not in TRAJECTORY_SUFFIXES:
        raise InputError(
            f"{path}: the ending is neither that of a model (.pdb, .ent, .cif, .mmcif, or one of these and "
            ".gz) nor of a trajectory that is known here (.dcd, .xtc, .trr, .nc, .h5, ...); convert the file."
        )
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; check the path of the trajectory.")
    if topology_path is None and suffix not in SUFFIXES_WITH_TOPOLOGY:
        raise InputError(
            f"{path}: a {suffix} file does not name its atoms; give a model of the same atoms as its "
            "topology (--topology model.pdb)."
        )
    topology = None if topology_path is None else _load_topology(Path(topology_path))
    trajectory = _load(path, topology, topology_path)
    if topology is not None:
        _check_atom_counts(path, trajectory.n_atoms, topology_path, topology.n_atoms)
        trajectory.topology = topology
    if not trajectory.n_frames:
        raise InputError(f"{path}: the trajectory has no frames; check whether the simulation wrote any.")
    return trajectory


def score(
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    resolution: Any,
    *,
    stride: int = 1,
    progress: Progress | None = None,
) -> Scores:
    """Correlate the frames of a trajectory with a map, as a whole and residue by residue.

    The correlations are those of `openmm_density.correlation`, for which see there. Positions are taken as
    they are: neither superposed nor moved to another periodic image.

    Parameters
    ----------
    trajectory : mdtraj.Trajectory
        The frames, in the frame of the map.
    density_map : DensityMap
        The map.
    resolution : float or Quantity
        Resolution in Å.
    stride : int
        Score every stride-th frame, from the first.
    progress : callable, optional
        Called after every frame with the numbers of frames that are done and that there are.

    Raises
    ------
    InputError
        If the stride or the resolution is not positive, or an element has no form factor, or a frame has
        positions that are not numbers.
    """
    frames = _frames(trajectory, stride)
    measure = MapCorrelation(density_map, _as_openmm(trajectory.topology), resolution)
    overall = np.empty(len(frames))
    by_residue = np.empty((len(frames), trajectory.n_residues))
    for row, values in enumerate(_over_frames(measure.evaluate, trajectory, frames, progress)):
        overall[row], by_residue[row] = values
    return Scores(
        resolution=in_angstrom(resolution),
        frames=frames,
        times=np.asarray(trajectory.time, dtype=np.float64)[frames],
        cc_mask=overall,
        residue_correlations=by_residue,
        residue_labels=tuple(residue.label for residue in _residues(trajectory.topology)),
    )


def correlation(
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    resolution: Any,
    *,
    stride: int = 1,
    progress: Progress | None = None,
) -> np.ndarray:
    """Give the correlation of every frame with a map, as every table of this package reports it.

    Parameters and errors are those of `score`.

    Returns
    -------
    np.ndarray of float64, shape (n_frames,)
        See `openmm_density.correlation.cc_mask`.
    """
    measure = MapCorrelation(density_map, _as_openmm(trajectory.topology), resolution)
    frames = _frames(trajectory, stride)
    return np.array(list(_over_frames(measure.cc_mask, trajectory, frames, progress)))


def residue_correlation(
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    resolution: Any,
    *,
    stride: int = 1,
    progress: Progress | None = None,
) -> np.ndarray:
    """Give the correlation of every residue with a map in every frame.

    Parameters and errors are those of `score`.

    Returns
    -------
    np.ndarray of float64, shape (n_frames, n_residues)
        NaN where it is undefined, see `openmm_density.correlation.residue_correlations`.
    """
    measure = MapCorrelation(density_map, _as_openmm(trajectory.topology), resolution)
    frames = _frames(trajectory, stride)
    return np.array(list(_over_frames(measure.residue_correlations, trajectory, frames, progress)))


def q_score(
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    *,
    sigma: Any = SIGMA,
    stride: int = 1,
    progress: Progress | None = None,
) -> QScores:
    """Give the Q-scores of every frame (Pintilie et al. 2020), see `openmm_density.q_score.q_scores`.

    Parameters
    ----------
    trajectory : mdtraj.Trajectory
        The frames, in the frame of the map.
    density_map : DensityMap
        The map.
    sigma : float or Quantity
        Width of the reference Gaussian in Å: 0.6 as published, 0.4 as on EMDB's validation pages.
    stride : int
        Score every stride-th frame, from the first.
    progress : callable, optional
        Called after every frame with the numbers of frames that are done and that there are.

    Returns
    -------
    QScores
        ``mean`` (n_frames,), ``residues`` (n_frames, n_residues) and ``atoms`` (n_frames, n_atoms); NaN where there is none.

    Raises
    ------
    InputError
        If the stride or σ is not positive, there is no non-hydrogen atom, or a frame has positions that are not numbers.
    """
    topology = _as_openmm(trajectory.topology)

    def evaluate(positions: np.ndarray) -> QScores:
        return q_scores(density_map, topology, positions, sigma=sigma)

    found = list(_over_frames(evaluate, trajectory, _frames(trajectory, stride), progress))
    return QScores(*(np.array(values) for values in zip(*found)))


def fsc(
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    resolution: Any,
    *,
    stride: int = 1,
    progress: Progress | None = None,
) -> list[ShellCorrelation]:
    """Give the Fourier shell correlation of a map with every frame, see `openmm_density.fsc.model_fsc`.

    Parameters and errors are those of `score`.

    Returns
    -------
    list of ShellCorrelation
        One curve for each frame; their shells differ with the size of the model. ``curve.resolution()`` is the crossing of 0.5.
    """
    topology = _as_openmm(trajectory.topology)

    def evaluate(positions: np.ndarray) -> ShellCorrelation:
        return model_fsc(density_map, topology, positions, resolution)

    return list(_over_frames(evaluate, trajectory, _frames(trajectory, stride), progress))


def _frames(trajectory: mdtraj.Trajectory, stride: int) -> np.ndarray:
    if stride < 1:
        raise InputError(f"stride={stride} is not possible; give 1 for every frame, 2 for every other, ...")
    return np.arange(0, trajectory.n_frames, stride)


def _over_frames(
    evaluate: Callable[[np.ndarray], Any],
    trajectory: mdtraj.Trajectory,
    frames: np.ndarray,
    progress: Progress | None,
) -> Iterator[Any]:
    """Evaluate frames one by one, from positions in Å; an error says in which frame."""
    for row, frame in enumerate(frames):
        positions = trajectory.xyz[frame].astype(np.float64) * ANGSTROM_PER_NANOMETER
        try:
            value = evaluate(positions)
        except InputError as error:
            raise InputError(f"frame {frame}: {error}") from error
        if progress is not None:
            progress(row + 1, len(frames))
        yield value


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
    by aligning the sequences of the chains, each chain with the one most like it. Copies of one chain that have
    other ids in the two models can only be told apart by where they are: give positions then.

    Parameters
    ----------
    topology, reference_topology : openmm.app.Topology or mdtraj.Topology
        The two models.
    positions, reference_positions : Quantity or array_like, shapes (N, 3) and (M, 3), optional
        Cartesian positions in Å, both in one frame. Where chain ids do not say which chain is which, chains that
        are alike are then paired with the nearest.

    Returns
    -------
    indices, reference_indices : ndarray of int, shape (n_pairs,)
        Atoms of the first and of the second topology, in the order of the first.

    Raises
    ------
    InputError
        If fewer than 3 residues can be paired.
    """
    models = [
        [residue for residue in _residues(given) if residue.traces]
        for given in (topology, reference_topology)
    ]
    places = None
    if positions is not None and reference_positions is not None:
        places = positions_in_angstrom(positions), positions_in_angstrom(reference_positions)
    pairs = _matched(*models, places)
    atoms, reference_atoms = _atoms(pairs)
    if len(atoms) < FEWEST_PAIRS:
        raise InputError(
            f"the models have {len(models[0])} and {len(models[1])} residues with Cα or P, of which {len(atoms)} "
            f"can be paired by chain, number or sequence, and at least {FEWEST_PAIRS} are needed; give a "
            "reference of the same molecule."
        )
    order = np.argsort(atoms)
    return atoms[order], reference_atoms[order]


def ca_rmsd(positions: Any, reference_positions: Any, pairs: tuple[Sequence[int] | np.ndarray, ...]) -> float:
    """Give the root mean square distance of paired atoms in Å, without superposition.

    Parameters
    ----------
    positions, reference_positions : Quantity or array_like, shapes (N, 3) and (M, 3)
        Cartesian positions in Å. (Those of an ``mdtraj.Trajectory`` are in nm.)
    pairs : tuple of two ndarray of int
        Indices into both, as `match_alpha_carbons` gives them.
    """
    indices, reference_indices = pairs
    difference = (
        positions_in_angstrom(positions)[indices]
        - positions_in_angstrom(reference_positions)[reference_indices]
    )
    return float(np.sqrt((difference**2).sum(axis=1).mean()))


def _matched(
    residues: list[_Residue],
    reference_residues: list[_Residue],
    places: tuple[np.ndarray, np.ndarray] | None,
) -> list[tuple[_Residue, _Residue]]:
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
        # The order of the chains says little about which of several copies is which, their places do.
        is_nearer = len(aligned) >= 0.9 * len(by_order) and _rmsd(aligned, places) < _rmsd(by_order, places)
        return aligned if is_nearer else by_order
    # Names that differ everywhere are either another numbering, which an alignment finds, or a model without
    # its sequence (poly-alanine), for which the numbers are all there is.
    if not all(map(_has_sequence, models)):
        for by_number in (by_id, by_order):
            if len(by_number) >= enough:
                return by_number
    return _paired_by_alignment(*models, places)


def _rmsd(pairs: list[tuple[_Residue, _Residue]], places: tuple[np.ndarray, np.ndarray]) -> float:
    return ca_rmsd(*places, _atoms(pairs))


def _atoms(pairs: list[tuple[_Residue, _Residue]]) -> tuple[np.ndarray, np.ndarray]:
    """Give the atoms that stand for paired residues, without pairs that have no such atom in common."""
    atoms = np.array(
        [(a.traces[name], b.traces[name]) for a, b in pairs for name in [_common_trace(a, b)] if name],
        dtype=np.int64,
    ).reshape(-1, 2)
    return atoms[:, 0], atoms[:, 1]


def _common_trace(a: _Residue, b: _Residue) -> str | None:
    return next((name for name in a.traces if name in b.traces), None)


class _Residue(NamedTuple):
    """A residue of either library's topology, with the atoms that can stand for it."""

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
        return " ".join(f"{self.chain} {self.name} {self.number}{self.insertion_code}".split())


def _residues(topology: app.Topology | mdtraj.Topology) -> list[_Residue]:
    of_mdtraj = isinstance(topology, mdtraj.Topology)
    residues: list[_Residue] = []
    # read_model starts a new chain at every gap, so chains that share an id are one chain until a place comes
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
                # An insertion whose code mdtraj has lost: it has a place of its own, unlike any with a code.
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
            _Residue(residue.name, chain, number, insertion_code, place, copy, order, letter, traces)
        )
    return residues


@functools.cache
def _letter(name: str) -> str:
    """Give the kind of polymer and the letter of a residue, as in ``protein H``; empty for other residues."""
    aliases, _ = name_tables()
    tabulated = gemmi.find_tabulated_residue(aliases.get(name, name))
    if tabulated.is_amino_acid():
        return f"protein {tabulated.one_letter_code.upper()}"
    if tabulated.is_nucleic_acid():
        return f"nucleic {tabulated.one_letter_code.upper()}"
    return ""


def _traces(letter: str, atoms: dict[str, Any]) -> dict[str, int]:
    """List the atoms that can stand for a residue; none for what is no part of a polymer."""
    is_protein = letter.startswith("protein") or (not letter and {"N", "CA", "C"} <= atoms.keys())
    names = ("CA",) if is_protein else ("P", "C1'", "C1*") if letter else ()
    # A calcium ion is called CA as well, but is no residue of a protein.
    return {name.replace("*", "'"): atoms[name].index for name in names if name in atoms}


def _by_chain_id(residue: _Residue) -> tuple[Any, ...]:
    return residue.chain, residue.copy, residue.place


def _by_chain_order(residue: _Residue) -> tuple[Any, ...]:
    return residue.chain_order, residue.place


def _paired_by(
    key: Callable[[_Residue], tuple[Any, ...]], residues: list[_Residue], reference_residues: list[_Residue]
) -> list[tuple[_Residue, _Residue]]:
    references = {key(residue): residue for residue in reference_residues}
    return [(residue, references[key(residue)]) for residue in residues if key(residue) in references]


def _identity(pairs: list[tuple[_Residue, _Residue]]) -> float:
    """Give the share of pairs with the same name, unknown residues counting as the same."""
    same = [
        a.letter == b.letter or not a.letter or not b.letter or "X" in (a.letter[-1], b.letter[-1])
        for a, b in pairs
    ]
    return sum(same) / max(len(same), 1)


def _has_sequence(residues: list[_Residue]) -> bool:
    counts = Counter(residue.letter for residue in residues)
    return max(counts.values(), default=0) < 0.5 * len(residues)


def _paired_by_alignment(
    residues: list[_Residue],
    reference_residues: list[_Residue],
    places: tuple[np.ndarray, np.ndarray] | None,
) -> list[tuple[_Residue, _Residue]]:
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
    alignments: dict[tuple[int, int], list[tuple[_Residue, _Residue]]] = {}
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
                # Copies of one chain are equally alike: the same id counts for more, then the same place.
                likeness[i, j] += 0.5 * (chain[0].chain == reference[0].chain) + 0.25 * (i == j)
            else:
                likeness[i, j] /= 1 + _rmsd(alignments[i, j], places) / DISTANCE_SCALE
    assignment = zip(*linear_sum_assignment(likeness, maximize=True))
    return [pair for i, j in assignment if (i, j) in alignments for pair in alignments[i, j]]


def _kind(chain: list[_Residue]) -> str:
    return "nucleic" if any(residue.letter.startswith("nucleic") for residue in chain) else "protein"


def _sequence(chain: list[_Residue]) -> list[str]:
    """Give letters of nucleotides, and of amino acids the standard names, by which BLOSUM62 goes."""
    letters = [residue.letter[-1:] or "X" for residue in chain]
    if _kind(chain) == "nucleic":
        return letters
    return [gemmi.expand_one_letter(letter, gemmi.ResidueKind.AA) or "UNK" for letter in letters]


def _aligned(cigar: str) -> Iterator[tuple[int, int]]:
    """List the aligned places of two sequences; I is a residue of the first alone, D of the second."""
    i = j = 0
    for count, kind in re.findall(r"(\d+)([MID])", cigar):
        steps = int(count)
        if kind == "M":
            yield from ((i + k, j + k) for k in range(steps))
        i += steps if kind in "MI" else 0
        j += steps if kind in "MD" else 0


def _suffix(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:]) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def _is_model(path: Path) -> bool:
    return _suffix(path).removesuffix(".gz") in PDB_SUFFIXES + CIF_SUFFIXES


def _as_mdtraj(topology: app.Topology) -> mdtraj.Topology:
    converted = mdtraj.Topology.from_openmm(topology)
    for residue, original in zip(converted.residues, topology.residues()):
        residue.insertion_code = original.insertionCode.strip()
    return converted


def _as_openmm(topology: mdtraj.Topology) -> app.Topology:
    """Convert what correlations need: residues and elements, whatever bonds mdtraj knows."""
    converted = app.Topology()
    for chain in topology.chains:
        new_chain = converted.addChain(chain.chain_id)
        for residue in chain.residues:
            new = converted.addResidue(residue.name, new_chain, str(residue.resSeq))
            for atom in residue.atoms:
                number = atom.element.atomic_number if atom.element is not None else 0
                element = app.Element.getByAtomicNumber(number) if number else None
                converted.addAtom(atom.name, element, new)
    return converted


def _frames_of_model(model: Model) -> mdtraj.Trajectory:
    frames = [model.positions, *_further_models(model)]
    lengths = angles = None
    if model.cell is not None:
        lengths = np.tile(np.array(model.cell[:3]) / 10.0, (len(frames), 1))
        angles = np.tile(np.array(model.cell[3:]), (len(frames), 1))
    return mdtraj.Trajectory(
        np.array(frames) / 10.0,
        _as_mdtraj(model.topology),
        unitcell_lengths=lengths,
        unitcell_angles=angles,
    )


def _further_models(model: Model) -> Iterator[np.ndarray]:
    """Give the positions of the models after the first, for the atoms that were read of the first."""
    structure = gemmi.read_structure(str(model.path), merge_chain_parts=False)
    if len(structure) < 2:
        return
    names = [_address(atom) for atom in structure[0].all()]
    numbers = {name: number for number, name in enumerate(names)}
    wanted = [
        (r.chain, r.residue_number, r.insertion_code, r.residue_name, r.name, r.altloc) for r in model.records
    ]
    if len(numbers) != len(names) or not all(name in numbers for name in wanted):
        # Atoms named alike can only be told apart by their order, which alternate locations have not kept.
        if len(names) != len(wanted):
            raise InputError(
                f"{model.path}: holds {len(structure)} models and several atoms of one name; "
                "write it as a trajectory (.dcd) and give its topology."
            )
        kept = list(range(len(names)))
    else:
        kept = [numbers[name] for name in wanted]
    for number, other in enumerate(structure, start=1):
        if number == 1:
            continue
        atoms = list(other.all())
        if [_address(atom) for atom in atoms] != names:
            raise InputError(
                f"{model.path}: its model {number} has other atoms than the first "
                f"({len(atoms)} in place of {len(names)}); leave only models of the same atoms in it."
            )
        positions = np.array([atom.atom.pos.tolist() for atom in atoms])
        yield positions[kept]


def _address(atom: gemmi.CRA) -> tuple[str, int, str, str, str, str]:
    place = atom.residue.seqid
    altloc = "" if atom.atom.altloc == "\0" else atom.atom.altloc
    return (atom.chain.name, place.num, place.icode.strip(), atom.residue.name, atom.atom.name, altloc)


def _load_topology(path: Path) -> mdtraj.Topology:
    if _is_model(path):
        return _as_mdtraj(read_model(path).topology)
    if _suffix(path) not in TOPOLOGY_SUFFIXES:
        raise InputError(
            f"{path}: the ending is not that of a topology; give a model of the trajectory's atoms "
            "(.pdb, .cif, also .gz)."
        )
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; check the path of the topology.")
    try:
        with _quiet():
            return mdtraj.load_topology(str(path))
    except Exception as error:
        raise InputError(f"{path}: cannot be read as a topology ({_first_line(error)}).") from error


def _load(
    path: Path, topology: mdtraj.Topology | None, topology_path: str | os.PathLike[str] | None
) -> mdtraj.Trajectory:
    given = {} if topology is None or _suffix(path) in SUFFIXES_WITH_TOPOLOGY else {"top": topology}
    try:
        with _quiet():
            return mdtraj.load(str(path), **given)
    except ImportError as error:
        # mdtraj tells in a paragraph which optional package a format needs.
        package = "tables" if "PyTables" in str(error) else getattr(error, "name", None) or "that it names"
        raise InputError(
            f"{path}: to read {_suffix(path)} files mdtraj needs a package that is not installed; "
            f"pip install {package}, or write a .dcd."
        ) from error
    except Exception as error:
        if topology is not None:
            _check_atom_counts(path, _atom_count(path), topology_path, topology.n_atoms)
        raise InputError(
            f"{path}: cannot be read as a {_suffix(path)} trajectory ({_first_line(error)}); check the file."
        ) from error


def _atom_count(path: Path) -> int | None:
    try:
        with _quiet(), mdtraj.open(str(path)) as file:
            frames = file.read(1)
        return int(np.shape(frames[0] if isinstance(frames, tuple) else frames)[-2])
    except Exception:
        return None


def _check_atom_counts(
    path: Path, count: int | None, topology_path: str | os.PathLike[str] | None, expected: int
) -> None:
    if count is not None and count != expected:
        raise InputError(
            f"{path}: the trajectory has {count} atoms and its topology {topology_path} has {expected}; "
            "give the model of which the trajectory was made, with hydrogens and solvent."
        )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep to itself what mdtraj and its C readers print, some of it to standard output, in the way of JSON."""
    libc = ctypes.CDLL(None)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    libc.fflush(None)
    kept, sink = (os.dup(1), os.dup(2)), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        libc.fflush(None)
        for number, stream in enumerate(kept, start=1):
            os.dup2(stream, number)
            os.close(stream)
        os.close(sink)

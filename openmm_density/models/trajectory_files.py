"""Read trajectories, and models as trajectories of one or more frames, with mdtraj."""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gemmi
import mdtraj
import numpy as np
from openmm import app

from ..base.errors import InputError, as_argument
from ..base.given_files import MODELS, check_given_file, kind_of
from ..base.unpacking import MAP_LIMIT, check_unpacked
from .structure_suffixes import is_structure_name
from .structure_text import read_structure
from .structures import read_model

if TYPE_CHECKING:
    from .structures import Model

TRAJECTORY_SUFFIXES = (
    *(".dcd", ".xtc", ".trr", ".nc", ".ncdf", ".netcdf", ".h5", ".hdf5", ".lh5", ".gsd", ".gro"),
    *(".xyz", ".xyz.gz", ".mdcrd", ".crd", ".inpcrd", ".rst7", ".ncrst", ".restrt", ".lammpstrj"),
)
SUFFIXES_WITH_TIMES = (".xtc", ".trr", ".nc", ".ncdf", ".netcdf", ".h5", ".hdf5")
"""Suffixes of formats that store the time of each frame; for others mdtraj counts the frames instead."""
SUFFIXES_WITH_TOPOLOGY = (".h5", ".hdf5", ".lh5", ".gro", ".gsd")
TOPOLOGY_SUFFIXES = (*SUFFIXES_WITH_TOPOLOGY, ".prmtop", ".parm7", ".prm7", ".psf", ".mol2")


def load_trajectory(
    path: str | os.PathLike[str], topology_path: str | os.PathLike[str] | None = None
) -> mdtraj.Trajectory:
    """Read a model, or a trajectory whose atoms another file names.

    A model (PDB or mmCIF, also gzipped) is read as `openmm_density.models.structures.read_model` reads it; of a file
    with several models each is a frame. Everything else is read by mdtraj. Residues from a PDB or
    mmCIF file keep their insertion code in an attribute ``insertion_code``, which mdtraj does not
    have: it is lost where mdtraj copies the topology, as in slices of the trajectory.

    Parameters
    ----------
    path : path-like
        The model (.pdb, .ent, .cif, .mmcif, or one of these and .gz) or the trajectory (.dcd, .xtc, .nc,
        .h5 and others).
    topology_path : path-like, optional
        Names the atoms of the trajectory: a model of the same atoms in the same order, or a topology that
        mdtraj reads (.prmtop, .psf, ...). Not needed for formats that have one (.h5, .gro).

    Returns
    -------
    mdtraj.Trajectory
        Positions in nm, as in mdtraj. They are neither made whole nor moved to another periodic image. ``time`` is in ps, and
        NaN where the format has no times (.dcd, models and others).

    Raises
    ------
    InputError
        The file is missing, cannot be read or has an unknown format, the topology is missing, or the
        numbers of atoms differ.
    """
    path = Path(path)
    if is_model(path):
        trajectory = _frames_of_model(read_model(path))
        if topology_path is not None:
            topology, _ = _load_topology(Path(topology_path))
            _check_atom_counts(path, trajectory.n_atoms, topology_path, topology.n_atoms)
            trajectory.topology = topology
        return trajectory
    _check_trajectory(path, topology_path)
    topology, ranks = (None, None) if topology_path is None else _load_topology(Path(topology_path))
    trajectory = _load(path, topology, topology_path)
    if topology is not None:
        _check_atom_counts(path, trajectory.n_atoms, topology_path, topology.n_atoms)
        if ranks is not None and _suffix(path) not in SUFFIXES_WITH_TOPOLOGY:
            trajectory.xyz = trajectory.xyz[:, ranks]
        trajectory.topology = topology
    if not trajectory.n_frames:
        raise InputError(
            "the trajectory has no frames",
            source=path,
            remedy="check whether the simulation wrote any",
        )
    if _suffix(path) not in SUFFIXES_WITH_TIMES:
        trajectory.time = np.full(trajectory.n_frames, np.nan)
    return trajectory


def _check_trajectory(path: Path, topology_path: str | os.PathLike[str] | None) -> None:
    """Raise InputError if a file cannot be a trajectory of a known format with named atoms."""
    suffix = _suffix(path)
    if suffix not in TRAJECTORY_SUFFIXES:
        raise InputError(
            "the ending is neither that of a model (.pdb, .ent, .cif, .mmcif, or one of these and .gz) nor "
            "of a trajectory that is known here (.dcd, .xtc, .trr, .nc, .h5, ...)",
            source=path,
            remedy="convert the file",
        )
    check_given_file(path, "check the path of the trajectory")
    if topology_path is None and suffix not in SUFFIXES_WITH_TOPOLOGY:
        raise InputError(
            f"a {suffix} file does not name its atoms",
            source=path,
            remedy=f"give a model of the same atoms as {as_argument('topology_path', 'model.pdb')}",
        )
    if suffix.endswith(".gz"):
        check_unpacked(path, MAP_LIMIT)


def _suffix(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:]) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def is_model(path: Path) -> bool:
    """Return whether a file is a model by its name, or by its content where that is no trajectory's or topology's."""
    is_of_others = _suffix(path) in TRAJECTORY_SUFFIXES + TOPOLOGY_SUFFIXES
    return is_structure_name(path) or (not is_of_others and kind_of(path) in MODELS)


def _as_mdtraj(topology: app.Topology) -> mdtraj.Topology:
    converted = mdtraj.Topology.from_openmm(topology)
    for residue, original in zip(converted.residues, topology.residues()):
        residue.insertion_code = original.insertionCode.strip()
    return converted


def as_openmm_topology(topology: mdtraj.Topology) -> app.Topology:
    """Convert what correlations need: residues, elements and mdtraj's bonds."""
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
        time=np.full(len(frames), np.nan),
        unitcell_lengths=lengths,
        unitcell_angles=angles,
    )


def _further_models(model: Model) -> Iterator[np.ndarray]:
    """Yield the positions of the models after the first, for the atoms read from the first."""
    structure = read_structure(model.path, first_model=False)
    if len(structure) < 2:
        return
    names = [_address(atom) for atom in structure[0].all()]
    numbers = {name: number for number, name in enumerate(names)}
    wanted = [
        (r.chain, r.residue_number, r.insertion_code, r.residue_name, r.name, r.altloc) for r in model.records
    ]
    if len(numbers) != len(names) or not all(name in numbers for name in wanted):
        # Only their order distinguishes atoms of one name, and alternate locations have changed it.
        if len(names) != len(wanted):
            raise InputError(
                f"holds {len(structure)} models and several atoms of one name",
                source=model.path,
                remedy="write it as a trajectory (.dcd) and give its topology",
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
                f"its model {number} has other atoms than the first ({len(atoms)} in place of {len(names)})",
                source=model.path,
                remedy="leave only models of the same atoms in it",
            )
        positions = np.array([atom.atom.pos.tolist() for atom in atoms])
        yield positions[kept]


def _address(atom: gemmi.CRA) -> tuple[str, int, str, str, str, str]:
    place = atom.residue.seqid
    altloc = "" if atom.atom.altloc == "\0" else atom.atom.altloc
    return (atom.chain.name, place.num, place.icode.strip(), atom.residue.name, atom.atom.name, altloc)


def dcd_frames(path: str | os.PathLike[str], atoms: np.ndarray, most: int) -> tuple[np.ndarray, int]:
    """Return some atoms of evenly spaced DCD frames, float32 (F, n, 3) in Å, and the spacing in frames of the file."""
    try:
        with _quiet():
            with mdtraj.formats.DCDTrajectoryFile(str(path)) as file:
                every = max(-(-len(file) // max(most, 1)), 1)
            with mdtraj.formats.DCDTrajectoryFile(str(path)) as file:
                # Complete frames only: beyond the last atom mdtraj would read arbitrary bytes.
                frames = file.read(stride=every)[0]
    except Exception as error:
        raise InputError(
            f"cannot be read as a .dcd trajectory ({_first_line(error)})",
            source=path,
            remedy="check the file",
        ) from error
    if len(atoms) and frames.shape[1] <= atoms.max():
        raise InputError(
            f"has {frames.shape[1]} atoms, fewer than its model", source=path, remedy="check the file"
        )
    return frames[:, atoms], every


def _load_topology(path: Path) -> tuple[mdtraj.Topology, np.ndarray | None]:
    """Return a topology, and the order of its atoms in a trajectory if that differs."""
    if is_model(path):
        model = read_model(path)
        return _as_mdtraj(model.topology), model.ranks
    if _suffix(path) not in TOPOLOGY_SUFFIXES:
        raise InputError(
            "the ending is not that of a topology",
            source=path,
            remedy="give a model of the trajectory's atoms (.pdb, .cif, also .gz)",
        )
    check_given_file(path, "check the path of the topology")
    try:
        with _quiet(), _without_pickles():
            return mdtraj.load_topology(str(path)), None
    except Exception as error:
        raise InputError(
            f"cannot be read as a topology ({_first_line(error)})", source=path, remedy="check the file"
        ) from error


def _load(
    path: Path, topology: mdtraj.Topology | None, topology_path: str | os.PathLike[str] | None
) -> mdtraj.Trajectory:
    given = {} if topology is None or _suffix(path) in SUFFIXES_WITH_TOPOLOGY else {"top": topology}
    try:
        with _quiet(), _without_pickles():
            return mdtraj.load(str(path), **given)
    except ImportError as error:
        # mdtraj needs a paragraph to name the optional package that a format requires.
        package = "tables" if "PyTables" in str(error) else getattr(error, "name", None) or "that it names"
        raise InputError(
            f"to read {_suffix(path)} files mdtraj needs a package that is not installed",
            source=path,
            remedy=f"pip install {package}, or write a .dcd",
        ) from error
    except Exception as error:
        if topology is not None:
            _check_atom_counts(path, _atom_count(path), topology_path, topology.n_atoms)
        raise InputError(
            f"cannot be read as a {_suffix(path)} trajectory ({_first_line(error)})",
            source=path,
            remedy="check the file",
        ) from error


def _atom_count(path: Path) -> int | None:
    try:
        with _quiet(), _without_pickles(), mdtraj.open(str(path)) as file:
            frames = file.read(1)
        return int(np.shape(frames[0] if isinstance(frames, tuple) else frames)[-2])
    except Exception:
        return None


def _check_atom_counts(
    path: Path, count: int | None, topology_path: str | os.PathLike[str] | None, expected: int
) -> None:
    if count is not None and count != expected:
        raise InputError(
            f"the trajectory has {count} atoms and its topology {topology_path} has {expected}",
            source=path,
            remedy="give the model that was simulated, with hydrogens and solvent",
        )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress what mdtraj and its C readers print, partly to standard output, where it would corrupt JSON."""
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


@contextmanager
def _without_pickles() -> Iterator[None]:
    """Keep PyTables from unpickling HDF5 contents, which can run any code; mdtraj's files need no pickles."""
    try:
        from tables import atom, attributeset
    except ImportError:
        yield
        return
    this_thread = threading.get_ident()

    class Pickle:
        """The module pickle, with loading refused in this thread."""

        @staticmethod
        def loads(*arguments: Any, **options: Any) -> Any:
            if threading.get_ident() == this_thread:
                raise pickle.UnpicklingError("pickled Python objects are not read")
            return pickle.loads(*arguments, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(pickle, name)

    given = atom.pickle, attributeset.pickle
    atom.pickle = attributeset.pickle = Pickle()
    try:
        yield
    finally:
        atom.pickle, attributeset.pickle = given

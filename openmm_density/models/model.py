"""An atomic model as read: its atoms, the file's names for them, and what else the file says."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from openmm import app

from ..base.errors import InputError
from ..base.units import takes_units
from ..base.wording import counted
from .confidence import Confidence
from .metadata import Metadata


@dataclass(frozen=True)
class AtomRecord:
    """The file's names for one atom: everything needed to write the same atom back."""

    name: str
    altloc: str
    element: str
    residue_name: str
    chain: str
    residue_number: int
    insertion_code: str
    segment: str
    hetero: bool
    charge: int
    serial: int
    file_element: str = ""  # as gemmi reads it, X for none

    @property
    def own(self) -> tuple[object, ...]:
        """What distinguishes it from the other atoms of its file."""
        return (*self.residue, self.segment, self.name, self.altloc, self.serial)

    @property
    def residue(self) -> tuple[str, int, str, str]:
        """The chain, number, insertion code and name of its residue."""
        return self.chain, self.residue_number, self.insertion_code, self.residue_name

    def describe(self) -> str:
        """Name the atom as in ``A HIS 87 NE2``."""
        residue = f"{self.chain} {self.residue_name} {self.residue_number}{self.insertion_code}"
        return " ".join(f"{residue} {self.name}".split())


@dataclass(frozen=True)
class Link:
    """A bond recorded in a file: LINK, SSBOND or _struct_conn."""

    first: int  # `first`, `second`: the atoms.
    second: int
    # Whether it leads to a crystallographic symmetry copy of the second atom
    symmetry: bool = False


@dataclass(frozen=True)
class Alternates:
    """The atoms of conformers that are not fitted, in the order of the file."""

    # Their names in the file; where a residue has another type in that conformer, with that residue name
    records: tuple[AtomRecord, ...] = ()
    positions: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))  # (K, 3), Å
    # `b_factors`, `occupancies` (K,) in Å² and fractions.
    b_factors: np.ndarray = field(default_factory=lambda: np.empty(0))
    occupancies: np.ndarray = field(default_factory=lambda: np.empty(0))
    # (K,), the index in the topology of the residue that each alternates with
    residues: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    # (K,), the model's atom that precedes each in the file; -1 for none
    after: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        """Return the number of atoms."""
        return len(self.records)

    def conformers(self) -> list[np.ndarray]:
        """Return the atoms of each conformer: those of one residue of the file with one label."""
        members: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for index, record in enumerate(self.records):
            members[(int(self.residues[index]), *record.residue, record.altloc)].append(index)
        return [np.array(each) for each in members.values()]

    def moved(self, positions: np.ndarray) -> Alternates:
        """Return the same atoms at other positions (K, 3), in Å."""
        return replace(self, positions=positions)

    def with_b_factors(self, of_conformers: np.ndarray) -> Alternates:
        """Return the same atoms with other B factors (K,) in Å², given conformer by conformer."""
        b_factors = np.empty(len(self))
        b_factors[np.concatenate(self.conformers())] = of_conformers
        return replace(self, b_factors=b_factors)

    def sentence(self) -> str:
        """Return a sentence that tells the user what happens to them."""
        conformers, atoms = len(self.conformers()), len(self)
        if conformers == 1:
            what = "1 alternate conformer is not fitted: it moves"
        else:
            what = f"{conformers} alternate conformers are not fitted: they move"
        return (
            f"{what} rigidly with the residue around and {'keeps' if conformers == 1 else 'keep'} label and occupancy in the "
            f"written model ({counted(atoms, 'atom')})."
        )


@takes_units("positions", b_factors="Å²")
@dataclass(repr=False)
class Model:
    """An atomic model as read.

    Attributes
    ----------
    path : Path
        The file.
    topology : openmm.app.Topology
        The atoms in the file's order, those of a residue together, with residue and atom names brought to the
        PDB's (``HSD`` is ``HIS``, isoleucine's ``CD`` is ``CD1``). A chain of the topology is one unbroken polymer, or one run of
        ligands, or of waters, so that several chains may carry the same id, as with mmCIF's label_asym_id.
        Bonds: standard ones, disulphides, those of the file, and those inferred from distances in and around
        non-standard residues, metal coordination included; between residues only where chemistry allows
        such bonds.
    positions : np.ndarray, shape (N, 3)
        Å, float64.
    b_factors, occupancies : np.ndarray, shape (N,)
        Å² and fractions.
    records : tuple of AtomRecord
        The names in the file, one for each atom.
    cell : tuple of float or None
        a, b, c (Å), α, β, γ (degrees); None where the file has none, or a dummy of 1 Å.
    space_group : str
        Of the crystal, as the file writes it (``P 1 21 1``); empty where there is none, where it is unknown, or where the
        coordinates use other axes than the PDB and mmCIF conventions.
    links : tuple of Link
        The covalent, disulphide and metal bonds recorded in the file between these atoms, however long.
    short_contacts : tuple of (int, int)
        Pairs of atoms of different residues at bond distance that are neither recorded in the file nor explained by chemistry
        (`openmm_density.models.link_chemistry`): they are not bonded.
    alternates : Alternates
        The atoms of the conformers that were not chosen; they are written again beside the chosen ones.
    ranks : np.ndarray of int, shape (N,), or None
        The position of each atom in the file's order, which trajectories keep; None where it is the topology's order.
    metadata : Metadata
        Everything else in the file: title, sequences, secondary structure and the like.
    notes : list of str
        What the reader omitted or decided, one sentence each.
    confidence : Confidence or None
        The confidence of a prediction; where its file has it in place of B factors, `b_factors` are estimates.
    """

    path: Path
    topology: app.Topology
    positions: np.ndarray
    b_factors: np.ndarray
    occupancies: np.ndarray
    records: tuple[AtomRecord, ...]
    cell: tuple[float, ...] | None = None
    space_group: str = ""
    links: tuple[Link, ...] = ()
    short_contacts: tuple[tuple[int, int], ...] = ()
    alternates: Alternates = field(default_factory=Alternates)
    ranks: np.ndarray | None = None
    metadata: Metadata = field(default_factory=Metadata)
    notes: list[str] = field(default_factory=list)
    confidence: Confidence | None = None

    def __repr__(self) -> str:
        atoms, residues = self.topology.getNumAtoms(), self.topology.getNumResidues()
        return f"Model({self.path.name}: {counted(atoms, 'atom')} in {counted(residues, 'residue')})"

    @property
    def known_b_factors(self) -> np.ndarray:
        """B factors (N,) in Å² as the file has them; 0 where it has confidence in their place."""
        estimated = self.confidence is not None and self.confidence.column is not None
        return np.zeros_like(self.b_factors) if estimated else self.b_factors


def check_model(model: Any, argument: str = "model") -> None:
    """Refuse what is no `Model`, such as the path of one."""
    if not isinstance(model, Model):
        raise InputError(
            "must be a Model",
            argument=argument,
            found=f"a {type(model).__name__}",
            remedy="read one with openmm_density.models.read_model(path)",
        )

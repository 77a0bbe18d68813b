"""gemmi's structure of a model for writing: atoms in order, links, cis peptides, crystal and metadata."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

import gemmi
import numpy as np
from openmm import app

from .alternates import moved_with_residues
from .chemistry.backbone import atoms_by_name, peptide_bonds
from .chemistry.elements import is_metal
from .chemistry.residue_names import is_standard_polymer
from .chemistry.torsions import torsion_angles
from .metadata import Metadata
from .model import Alternates, Link
from .structures import AtomRecord, Model, is_backbone_bond

CIS = 30.0
"""Degrees of |ω| below which a file records a peptide bond as cis, as the wwPDB does."""


@dataclass(frozen=True)
class Header:
    """What a file says about a model besides the names and positions of its atoms."""

    # Written if their atom names are unambiguous; those to symmetry copies only with a
    # space group
    links: tuple[Link, ...] = ()
    cell: tuple[float, ...] | None = None  # a, b, c (Å), α, β, γ (degrees)
    space_group: str = ""  # As in ``P 1 21 1``; a cell without one is written with P 1
    occupancies: np.ndarray | None = None  # (N,), of the atoms, 1 where not given
    records: Sequence[AtomRecord] | None = None  # Of the atoms, where more is known than the topology says
    metadata: Metadata = field(default_factory=Metadata)  # Title, sequences, secondary structure and the like
    # For a model from an mmCIF file: the row, from 1, of each atom, or of one of its residue if it was built
    rows: tuple[int, ...] | None = None
    built: tuple[bool, ...] | None = None  # Whether each atom was built; by default none
    # For a prediction: the pLDDT of residues (`openmm_density.models.predictions.plddt_by_residue`), and its program
    plddt: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    predictor: str = ""


@dataclass(frozen=True)
class WrittenAtoms:
    """Atoms to be written, in the residues of a topology; each field has an entry for each."""

    records: Sequence[AtomRecord]
    residues: np.ndarray  # int (N,): in the topology
    index: np.ndarray  # int (N,): in the topology, or -1 for one of an alternate conformer
    positions: np.ndarray  # (N, 3), Å
    b_factors: np.ndarray  # `b_factors`, `occupancies` (N,), in Å² and fractions.
    occupancies: np.ndarray

    def __len__(self) -> int:
        """Return the number of atoms."""
        return len(self.records)

    def ordered(self, order: np.ndarray) -> WrittenAtoms:
        """Return the atoms in another order, int (N,)."""
        arrays = (self.residues, self.index, self.positions, self.b_factors, self.occupancies)
        return WrittenAtoms([self.records[k] for k in order.tolist()], *(values[order] for values in arrays))

    @cached_property
    def places(self) -> np.ndarray:
        """Where each atom of the topology is among them, int (M,)."""
        places = np.empty(self.index.max(initial=-1) + 1, dtype=np.int64)
        is_own = self.index >= 0
        places[self.index[is_own]] = np.flatnonzero(is_own)
        return places


def atoms_of(
    topology: app.Topology,
    records: Sequence[AtomRecord],
    positions: np.ndarray,
    b_factors: np.ndarray,
    occupancies: np.ndarray,
) -> WrittenAtoms:
    """Return the atoms of a topology with the names of their records."""
    residues = np.array([atom.residue.index for atom in topology.atoms()], dtype=np.int64)
    return WrittenAtoms(records, residues, np.arange(len(records)), positions, b_factors, occupancies)


def atoms_of_model(
    model: Model, positions: np.ndarray, b_factors: np.ndarray, alternates: Alternates | None = None
) -> WrittenAtoms:
    """Return a model's atoms and those of its alternates, by default moved with it, in the order of its file."""
    fitted = atoms_of(model.topology, model.records, positions, b_factors, model.occupancies)
    if alternates is None:
        alternates = model.alternates.moved(moved_with_residues(model, positions))
    if not len(alternates):
        return fitted
    both = WrittenAtoms(
        (*fitted.records, *alternates.records),
        np.concatenate([fitted.residues, alternates.residues]),
        np.concatenate([fitted.index, np.full(len(alternates), -1)]),
        np.concatenate([fitted.positions, alternates.positions]),
        np.concatenate([fitted.b_factors, np.nan_to_num(alternates.b_factors)]),
        np.concatenate([fitted.occupancies, alternates.occupancies]),
    )
    return both.ordered(np.argsort(np.concatenate([fitted.index, alternates.after]), kind="stable"))


def structure_of(
    topology: app.Topology, atoms: WrittenAtoms, header: Header, merged: bool = False
) -> gemmi.Structure:
    """Make gemmi's structure from atoms in a topology's residues; chains are subchains or, if `merged`, united by name."""
    structure = gemmi.Structure()
    structure.name = "model"
    structure.add_model(_chains_of(topology, atoms, merged))
    if header.cell is not None:
        structure.cell = gemmi.UnitCell(*header.cell)
        structure.spacegroup_hm = header.space_group or "P 1"
        structure.setup_cell_images()
    _add_links(structure, topology, atoms, header)
    structure.cispeps = cis_peptides(topology, atoms)
    if merged:
        structure.merge_chain_parts()
    blank = {residue.index for residue in topology.residues() if not residue.chain.id.strip()}
    named = (record.chain for record, k in zip(atoms.records, atoms.residues.tolist()) if k in blank)
    header.metadata.attach(structure, aligned=not merged, unnamed=next(named, "") if blank else "")
    return structure


def _chains_of(topology: app.Topology, atoms: WrittenAtoms, merged: bool) -> gemmi.Model:
    """Return the atoms in their residues and chains."""
    model = gemmi.Model(1)
    joined = {
        atom.residue.index
        for pair in topology.bonds()
        if pair[0].residue is not pair[1].residue and is_backbone_bond(*pair)
        for atom in pair
    }
    members: dict[int, dict[tuple[object, ...], list[tuple[AtomRecord, gemmi.Atom]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for residue, record, atom in zip(atoms.residues.tolist(), atoms.records, _gemmi_atoms(atoms)):
        members[residue][record.residue].append((record, atom))
    elsewhere: list[gemmi.Chain] = []
    for number, chain in enumerate(topology.chains()):
        written: gemmi.Chain | None = None
        for position_in_chain, residue in enumerate(chain.residues(), start=1):
            # In another conformer the residue may have another type.
            for own in members[residue.index].values():
                new = gemmi.Residue()
                for _, atom in own:
                    new.add_atom(atom)
                record = own[-1][0]
                new.name = record.residue_name
                new.seqid = _seqid(record)
                new.het_flag = "H" if record.hetero else "A"
                polymer = is_standard_polymer(residue.name) or residue.index in joined
                new.subchain = record.chain if merged and polymer else _label_asym(number)
                kind = "Polymer" if polymer else ("Water" if residue.name == "HOH" else "NonPolymer")
                new.entity_type = getattr(gemmi.EntityType, kind)
                if polymer:
                    new.label_seq = position_in_chain
                if written is None:
                    written = gemmi.Chain(record.chain)
                if record.chain == written.name:
                    written.add_residue(new)
                else:
                    # It alternates with a residue of another chain.
                    new.subchain = _label_asym(topology.getNumChains() + len(elsewhere))
                    elsewhere.append(gemmi.Chain(record.chain))
                    elsewhere[-1].add_residue(new)
        if written is not None:
            model.add_chain(written)
    for each in elsewhere:
        model.add_chain(each)
    return model


def _gemmi_atoms(atoms: WrittenAtoms) -> Iterator[gemmi.Atom]:
    element = cache(gemmi.Element)
    numbers = zip(atoms.positions.tolist(), atoms.b_factors.tolist(), atoms.occupancies.tolist())
    for serial, (record, (position, b_factor, occupancy)) in enumerate(zip(atoms.records, numbers), start=1):
        written = gemmi.Atom()
        written.name = record.name
        written.altloc = record.altloc or "\0"
        written.element = element(record.element)
        written.charge = record.charge
        written.pos = gemmi.Position(*position)
        written.b_iso = b_factor
        written.occ = occupancy
        written.serial = serial
        yield written


def cis_peptides(topology: app.Topology, atoms: WrittenAtoms) -> list[gemmi.CisPep]:
    """Return the peptide bonds with |ω| below `CIS`."""
    bonds = peptide_bonds(topology, atoms_by_name(topology))
    torsions = [
        (before["CA"], before["C"], behind["N"], behind["CA"])
        for before, behind in bonds
        if "CA" in before and "CA" in behind
    ]
    rows = atoms.places[np.array(torsions, dtype=np.int64).reshape(-1, 4)]
    near = np.abs(np.degrees(torsion_angles(atoms.positions, rows))) < CIS + 1.0
    found = []
    for ends in rows[near].tolist():
        places = (gemmi.Position(*atoms.positions[k]) for k in ends)
        omega = np.degrees(gemmi.calculate_dihedral(*places))
        if abs(omega) < CIS:
            peptide = gemmi.CisPep()
            peptide.partner_c, peptide.partner_n = (_address(atoms.records[k]) for k in ends[1:3])
            peptide.reported_angle, peptide.model_num = float(omega), 1
            found.append(peptide)
    return found


def _address(record: AtomRecord, altloc: str = "\0") -> gemmi.AtomAddress:
    return gemmi.AtomAddress(record.chain, _seqid(record), record.residue_name, record.name, altloc)


def _add_links(
    structure: gemmi.Structure, topology: app.Topology, atoms: WrittenAtoms, header: Header
) -> None:
    count: Counter[gemmi.ConnectionType] = Counter()
    own = list(topology.atoms()) if header.links else []
    for link in header.links:
        rows = atoms.places[[link.first, link.second]].tolist()
        addresses = [_address(atoms.records[k], atoms.records[k].altloc or "\0") for k in rows]
        found = [structure[0].find_cra(address, ignore_segment=True).atom for address in addresses]
        # Where numbers ran out, or only segments distinguish chains, the names refer to another atom.
        meant = all(atom is not None and atom.serial == k + 1 for atom, k in zip(found, rows))
        if not meant or (link.symmetry and not header.space_group):
            continue
        connection = gemmi.Connection()
        connection.type = _kind(own[link.first], own[link.second])
        count[connection.type] += 1
        connection.name = f"{connection.type.name.lower()}{count[connection.type]}"
        connection.partner1, connection.partner2 = addresses
        connection.asu = gemmi.Asu.Different if link.symmetry else gemmi.Asu.Same
        structure.connections.append(connection)


def _kind(a: app.topology.Atom, b: app.topology.Atom) -> gemmi.ConnectionType:
    if is_metal(a) or is_metal(b):
        return gemmi.ConnectionType.MetalC
    return gemmi.ConnectionType.Disulf if a.name == b.name == "SG" else gemmi.ConnectionType.Covale


def _seqid(record: AtomRecord) -> gemmi.SeqId:
    return gemmi.SeqId(record.residue_number, record.insertion_code or " ")


def _label_asym(number: int) -> str:
    letters = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters

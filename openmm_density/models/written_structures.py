"""gemmi's structure of a model for writing: atoms in order, links, cis peptides, crystal and metadata."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import gemmi
import numpy as np
from openmm import app

from .alternates import moved_with_residues
from .chemistry.elements import is_metal
from .chemistry.residue_names import is_standard_polymer
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
    # Conformer labels of the atoms, empty for atoms without alternates
    altlocs: tuple[str, ...] | None = None
    # The atoms of unknown element, whatever the topology substitutes
    unknown: frozenset[int] = frozenset()
    charges: tuple[int, ...] | None = None  # Formal charges, 0 where not given
    metadata: Metadata = field(default_factory=Metadata)  # Title, sequences, secondary structure and the like
    # For a model from an mmCIF file: the row, from 1, of each atom, or of one of its residue if it was built
    rows: tuple[int, ...] | None = None
    built: tuple[bool, ...] | None = None  # Whether each atom was built; by default none
    # For a prediction: the pLDDT of residues (`openmm_density.models.predictions.plddt_by_residue`), and its program
    plddt: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    predictor: str = ""


@dataclass(frozen=True)
class WrittenAtom:
    """An atom to be written, in a residue of a topology; `index` there, or -1 for one of an alternate conformer."""

    record: AtomRecord
    residue: int
    index: int
    position: np.ndarray
    b_factor: float
    occupancy: float


def atoms_of(
    topology: app.Topology,
    records: Sequence[AtomRecord],
    positions: np.ndarray,
    b_factors: np.ndarray,
    occupancies: np.ndarray,
) -> list[WrittenAtom]:
    """Return the atoms of a topology with the names of their records."""
    return [
        WrittenAtom(record, atom.residue.index, atom.index, position, float(b_factor), float(occupancy))
        for atom, record, position, b_factor, occupancy in zip(
            topology.atoms(), records, positions, b_factors, occupancies, strict=True
        )
    ]


def atoms_of_model(
    model: Model, positions: np.ndarray, b_factors: np.ndarray, alternates: Alternates | None = None
) -> list[WrittenAtom]:
    """Return a model's atoms and those of its alternates, by default moved with it, in the order of its file."""
    fitted = atoms_of(model.topology, model.records, positions, b_factors, model.occupancies)
    if alternates is None:
        alternates = model.alternates.moved(moved_with_residues(model, positions))
    places = alternates.positions
    others = [
        WrittenAtom(
            alternates.records[k],
            int(alternates.residues[k]),
            -1,
            places[k],
            float(np.nan_to_num(alternates.b_factors[k])),
            float(alternates.occupancies[k]),
        )
        for k in range(len(alternates))
    ]
    keys = [(k, -1) for k in range(len(fitted))]
    keys += [(int(after), k) for k, after in enumerate(alternates.after)]
    both = fitted + others
    return [both[k] for k in sorted(range(len(both)), key=keys.__getitem__)]


def structure_of(
    topology: app.Topology, atoms: Sequence[WrittenAtom], header: Header, merged: bool = False
) -> gemmi.Structure:
    """Make gemmi's structure from atoms in a topology's residues; chains are subchains or, if `merged`, united by name."""
    serials = {atom.index: serial for serial, atom in enumerate(atoms, start=1) if atom.index >= 0}
    residues = list(topology.residues())
    structure = gemmi.Structure()
    structure.name = "model"
    structure.add_model(_chains_of(topology, atoms, merged))
    if header.cell is not None:
        structure.cell = gemmi.UnitCell(*header.cell)
        structure.spacegroup_hm = header.space_group or "P 1"
        structure.setup_cell_images()
    records = {atom.index: atom.record for atom in atoms if atom.index >= 0}
    _add_links(structure, list(topology.atoms()), records, serials, header)
    structure.cispeps = cis_peptides(topology, {atom.index: atom for atom in atoms})
    if merged:
        structure.merge_chain_parts()
    named = (atom.record.chain for atom in atoms if not residues[atom.residue].chain.id.strip())
    header.metadata.attach(structure, aligned=not merged, unnamed=next(named, ""))
    return structure


def _chains_of(topology: app.Topology, atoms: Sequence[WrittenAtom], merged: bool) -> gemmi.Model:
    """Return the atoms in their residues and chains."""
    model = gemmi.Model(1)
    joined = {
        atom.residue.index
        for pair in topology.bonds()
        if pair[0].residue is not pair[1].residue and is_backbone_bond(*pair)
        for atom in pair
    }
    members: dict[int, dict[tuple[object, ...], list[tuple[int, WrittenAtom]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for serial, atom in enumerate(atoms, start=1):
        members[atom.residue][atom.record.residue].append((serial, atom))
    elsewhere: list[gemmi.Chain] = []
    for number, chain in enumerate(topology.chains()):
        written: gemmi.Chain | None = None
        for position_in_chain, residue in enumerate(chain.residues(), start=1):
            # In another conformer the residue may have another type.
            for own in members[residue.index].values():
                new = gemmi.Residue()
                for serial, atom in own:
                    new.add_atom(_gemmi_atom(atom, serial))
                record = own[-1][1].record
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


def _gemmi_atom(atom: WrittenAtom, serial: int) -> gemmi.Atom:
    record = atom.record
    written = gemmi.Atom()
    written.name = record.name
    written.altloc = record.altloc or "\0"
    written.element = gemmi.Element(record.element)
    written.charge = record.charge
    written.pos = gemmi.Position(*atom.position)
    written.b_iso = atom.b_factor
    written.occ = atom.occupancy
    written.serial = serial
    return written


def cis_peptides(topology: app.Topology, atoms: Mapping[int, WrittenAtom]) -> list[gemmi.CisPep]:
    """Return the peptide bonds with |ω| below `CIS`."""
    found = []
    for a, b in topology.bonds():
        if a.residue is b.residue or {a.name, b.name} != {"C", "N"}:
            continue
        carbon, nitrogen = (a, b) if a.name == "C" else (b, a)
        alpha, following = (
            next((atom for atom in end.residue.atoms() if atom.name == "CA"), None)
            for end in (carbon, nitrogen)
        )
        if alpha is None or following is None:
            continue
        ends = [atoms[each.index] for each in (alpha, carbon, nitrogen, following)]
        omega = np.degrees(gemmi.calculate_dihedral(*(gemmi.Position(*each.position) for each in ends)))
        if abs(omega) < CIS:
            peptide = gemmi.CisPep()
            peptide.partner_c, peptide.partner_n = (
                gemmi.AtomAddress(
                    each.record.chain, _seqid(each.record), each.record.residue_name, each.record.name
                )
                for each in ends[1:3]
            )
            peptide.reported_angle, peptide.model_num = float(omega), 1
            found.append(peptide)
    return found


def _add_links(
    structure: gemmi.Structure,
    atoms: Sequence[app.topology.Atom],
    records: Mapping[int, AtomRecord],
    serials: Mapping[int, int],
    header: Header,
) -> None:
    count: Counter[gemmi.ConnectionType] = Counter()
    for link in header.links:
        ends = (link.first, link.second)
        addresses = [
            gemmi.AtomAddress(
                records[k].chain,
                _seqid(records[k]),
                records[k].residue_name,
                records[k].name,
                records[k].altloc or "\0",
            )
            for k in ends
        ]
        found = [structure[0].find_cra(address, ignore_segment=True).atom for address in addresses]
        # Where numbers ran out, or only segments distinguish chains, the names refer to another atom.
        meant = all(atom is not None and atom.serial == serials[k] for atom, k in zip(found, ends))
        if not meant or (link.symmetry and not header.space_group):
            continue
        connection = gemmi.Connection()
        connection.type = _kind(atoms[link.first], atoms[link.second])
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

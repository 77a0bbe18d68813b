"""Write models: any topology as mmCIF, and a model that was read as PDB, atom for atom as in its file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gemmi
import numpy as np
from openmm import app

from ..base.atomic_files import write_text
from ..base.errors import InputError
from ..base.garbage import without_collection
from ..base.units import positions_in_angstrom, takes_units
from .chemistry.elements import UNKNOWN
from .chemistry.residue_names import is_standard_polymer
from .kept_files import (
    CifAtoms,
    atom_block,
    input_document,
    kept_document,
    kept_pdb,
    left_out_of_cif,
    left_out_of_pdb,
)
from .model import Alternates, Link
from .predictions import add_local_metric, as_in_file, plddt_by_residue
from .structures import BACKBONE_BONDS, AtomRecord, Model
from .written_structures import Header, WrittenAtoms, atoms_of, atoms_of_model, cis_peptides, structure_of

if TYPE_CHECKING:
    from .preparation import Prepared


def header_of(model: Model) -> Header:
    """Return the links in a model's file, other bonds between its residues, its crystal, and its metadata."""
    links = _with_bonds(model.links, model.topology)
    rows = tuple(record.serial for record in model.records)
    # Without serial numbers the rows cannot be identified; and tags may be spelled differently.
    has_tags = all(
        f"_atom_site.{name}" in model.metadata.text for name in ("id", "Cartn_x", "Cartn_y", "Cartn_z")
    )
    is_kept = has_tags and not model.metadata.is_pdb and min(rows, default=0) > 0
    return Header(
        links,
        model.cell,
        model.space_group,
        metadata=model.metadata,
        rows=rows if is_kept and len(set(rows)) == len(rows) else None,
        plddt=plddt_by_residue(model),
        predictor="" if model.confidence is None else model.confidence.program,
    )


def prepared_header(prepared: Prepared) -> Header:
    """Return the header of a model for its prepared atoms; a box of water is not its crystal.

    Occupancies, conformer labels and formal charges are the input's; a built atom has the occupancy and
    label of the nearest input atom of its residue, and no charge.
    """
    model = prepared.model
    header = header_of(model)
    nearest = prepared.nearest_input()
    altlocs = ["" if k < 0 else model.records[k].altloc for k in nearest.tolist()]
    own = [None if k < 0 else model.records[k] for k in prepared.input_index.tolist()]
    header = replace(
        header,
        occupancies=np.append(model.occupancies, 1.0)[nearest],
        records=_records_of(prepared.topology, altlocs, own),
        rows=None if header.rows is None or nearest.min() < 0 else tuple(header.rows[k] for k in nearest),
        built=tuple(each is None for each in own),
    )
    index = [int(atom) for atom in prepared.prepared_index]
    links = tuple(
        Link(index[link.first], index[link.second], link.symmetry)
        for link in header.links
        if index[link.first] >= 0 and index[link.second] >= 0
    )
    if prepared.solvent == "water":
        header = replace(header, cell=None, space_group="")
    return replace(header, links=links)


@takes_units("positions", b_factors="Å²")
def write_cif(
    path: str | os.PathLike[str],
    topology: app.Topology,
    positions: Any,
    b_factors: Sequence[float] | np.ndarray | None = None,
    header: Header | None = None,
) -> None:
    """Write all atoms of a topology as mmCIF.

    Chain ids and residue numbers are written as auth_asym_id and auth_seq_id, each chain of the topology as a
    label_asym_id of its own; a blank chain id becomes the first free letter. Links, and bonds between residues
    that are not those of the backbone, are written as _struct_conn.

    Parameters
    ----------
    path : path-like
    topology : openmm.app.Topology
    positions : Quantity or array_like, shape (N, 3)
        Å where plain.
    b_factors : array_like, shape (N,), optional
        Å²; zero where not given.
    header : Header, optional
        Links besides the topology's own, the crystal, occupancies and conformer labels. Conformers outside the
        topology are not written.

    Raises
    ------
    InputError
        The numbers of atoms differ, a coordinate is not a number, or the file cannot be written.
    """
    header = header or Header()
    write_text(path, document_of_models(path, topology, [positions], b_factors, header).as_string())


@without_collection()
def document_of_models(
    path: str | os.PathLike[str],
    topology: app.Topology,
    models: Sequence[Any],
    b_factors: Sequence[float] | np.ndarray | None,
    header: Header,
) -> gemmi.cif.Document:
    """Return the mmCIF document of a topology at the positions of one or more models: the input's own, if it was mmCIF."""
    links = _with_bonds(header.links, topology)
    records = header.records or _records_of(topology)
    occupancies = np.ones(len(records)) if header.occupancies is None else header.occupancies
    b_factors = _checked_b_factors(path, b_factors, len(records))
    # As gemmi keeps them.
    of_atoms = (values.astype(np.float32).astype(np.float64) for values in (b_factors, occupancies))
    first = atoms_of(topology, records, _checked_positions(path, models[0], len(records)), *of_atoms)
    others = [replace(first, positions=_checked_positions(path, each, len(records))) for each in models[1:]]
    header = replace(header, links=links)
    if header.rows is not None and len(header.rows) == len(records):
        rows, built = np.array(header.rows), np.array(header.built or np.zeros(len(records)), dtype=bool)
        atoms = [_cif_atoms(each, rows, built) for each in (first, *others)]
        return kept_document(header, atoms, cis_peptides(topology, first))
    structure = structure_of(topology, first, header)
    for number, each in enumerate(others, start=2):
        model = structure_of(topology, each, replace(header, links=()))[0]
        model.num = number
        structure.add_model(model)
    return _cif_document(structure, header)


def _cif_atoms(atoms: WrittenAtoms, rows: np.ndarray, built: np.ndarray) -> CifAtoms:
    """Return atoms as rows of their file."""
    names, residue_names, elements, altlocs = (
        np.array([getattr(record, name) for record in atoms.records], dtype=object)
        for name in ("name", "residue_name", "element", "altloc")
    )
    of_atoms = atoms.positions, atoms.b_factors, atoms.occupancies
    return CifAtoms(rows, built, names, residue_names, elements, altlocs, *of_atoms)


@without_collection()
@takes_units("positions", b_factors="Å²")
def write_model_cif(
    path: str | os.PathLike[str],
    model: Model,
    positions: Any,
    b_factors: Sequence[float] | np.ndarray | None = None,
    occupancies: np.ndarray | None = None,
    alternates: Alternates | None = None,
) -> list[str]:
    """Write the atoms of a model that was read, at other positions, as mmCIF.

    A model from an mmCIF file is written into that file's own document (`openmm_density.models.kept_files.kept_document`). One
    from a PDB file is written as by `write_pdb`, but without segments, which mmCIF lacks; a blank chain id becomes the first
    free letter.

    Parameters
    ----------
    path : path-like
    model : Model
    positions : Quantity or array_like, shape (N, 3)
        Å where plain; from `openmm_density.models.preparation.Prepared.input_positions`.
    b_factors, occupancies : array_like, shape (N,), optional
        Å², and fractions; the input's where not given.
    alternates : Alternates, optional
        The model's alternate conformers as they are now, where they did not move rigidly with it.

    Returns
    -------
    list of str
        What of the input's file is not written, in sentences.

    Raises
    ------
    InputError
        The numbers of atoms differ, a coordinate is not a number, or the file cannot be written.
    """
    positions, b_factors = _checked_for(path, model, positions, b_factors)
    atoms = atoms_of_model(_occupied(model, occupancies), positions, b_factors, alternates)
    header = header_of(model)
    rows = np.array([record.serial for record in atoms.records])
    if header.rows is not None and len(np.unique(rows)) == len(rows):
        atoms = atoms.ordered(np.argsort(rows))
        links = tuple(
            replace(link, first=int(atoms.places[link.first]), second=int(atoms.places[link.second]))
            for link in header.links
        )
        written = _cif_atoms(atoms, np.sort(rows), np.zeros(len(rows), dtype=bool))
        peptides = cis_peptides(model.topology, atoms)
        document = kept_document(replace(header, links=links), [written], peptides)
        left_out = left_out_of_cif(atom_block(input_document(header)), atom_block(document))
    else:
        left_out = []
        atoms = replace(atoms, records=_without_blank_chains(atoms.records))
        document = _cif_document(structure_of(model.topology, atoms, header), header)
    write_text(path, document.as_string())
    return left_out


def _cif_document(structure: gemmi.Structure, header: Header) -> gemmi.cif.Document:
    """Return the mmCIF document of a structure, with the metadata of a header."""
    structure.ensure_entities()
    groups = gemmi.MmcifOutputGroups(True)
    groups.tls = groups.origx = False
    groups.cell = groups.symmetry = groups.scale = structure.cell.is_crystal()
    document = structure.make_mmcif_document(groups)
    header.metadata.add_categories(document.sole_block())
    add_local_metric(document.sole_block(), header.plddt, header.predictor)
    return document


def _with_bonds(links: tuple[Link, ...], topology: app.Topology) -> tuple[Link, ...]:
    """Return links, followed by other bonds between residues that do not follow from the sequence."""
    known = {frozenset((link.first, link.second)) for link in links if not link.symmetry}
    return links + tuple(
        Link(a.index, b.index)
        for a, b in topology.bonds()
        if a.residue is not b.residue
        and not _follows_from_sequence(a, b)
        and frozenset((a.index, b.index)) not in known
    )


def _follows_from_sequence(a: app.topology.Atom, b: app.topology.Atom) -> bool:
    if a.index > b.index:
        a, b = b, a
    neighbours = b.residue.index == a.residue.index + 1 and a.residue.chain is b.residue.chain
    return neighbours and (a.name, b.name) in BACKBONE_BONDS


def _records_of(
    topology: app.Topology, altlocs: Sequence[str] = (), own: Sequence[AtomRecord | None] = ()
) -> Sequence[AtomRecord]:
    """Return records of a topology's atoms, as if read from a file, with the labels and `own` element and charge of each."""
    altlocs, own = altlocs or [""] * topology.getNumAtoms(), own or [None] * topology.getNumAtoms()
    records: list[AtomRecord] = []
    for residue in topology.residues():
        of_residue = {
            "residue_name": residue.name,
            "chain": residue.chain.id.strip(),
            "residue_number": _number(residue),
            "insertion_code": residue.insertionCode.strip(),
            "segment": "",
            "hetero": not is_standard_polymer(residue.name),
        }
        for atom in residue.atoms():
            k, read = len(records), own[len(records)]
            # Whatever the topology substitutes where the element is unknown.
            is_known = atom.element is not None and (read is None or read.element != UNKNOWN)
            of_atom = atom.name, altlocs[k], atom.element.symbol if is_known else UNKNOWN
            charge = 0 if read is None else read.charge
            records.append(AtomRecord(*of_atom, **of_residue, charge=charge, serial=k + 1))
    return _without_blank_chains(records)


def _without_blank_chains(records: Sequence[AtomRecord]) -> Sequence[AtomRecord]:
    """Return records in which a chain without id has the first free letter, as mmCIF requires."""
    used = {record.chain for record in records}
    if "" not in used:
        return records
    letter = next(letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in used or letter == "Z")
    return [replace(record, chain=record.chain or letter) for record in records]


def _number(residue: app.topology.Residue) -> int:
    try:
        return int(residue.id)
    except ValueError:
        return residue.index + 1


def pdb_limit(model: Model, positions: Any) -> str | None:
    """Return why the PDB format cannot hold a model; None where it can."""
    positions = positions_in_angstrom(positions)
    records = [*model.records, *model.alternates.records]
    if len(records) > 99999:
        return f"it has {len(records)} atoms and the format holds 99999"
    for record in records:
        if len(record.chain) > 1:
            return f"chain {record.chain!r} has a name of more than one letter"
        if not -999 <= record.residue_number <= 9999:
            return (
                f"residue number {record.residue_number} of chain {record.chain!r} has more than four digits"
            )
        if len(record.residue_name) > 3:
            return f"residue name {record.residue_name!r} has more than three letters"
        if len(record.name) > 4:
            return f"atom name {record.name!r} has more than four letters"
    if len(positions) and (positions.max() > 9999.999 or positions.min() < -999.999):
        return "a coordinate is above 9999.999 or below -999.999 Å"
    return None


@without_collection()
@takes_units("positions", b_factors="Å²")
def write_pdb(
    path: str | os.PathLike[str],
    model: Model,
    positions: Any,
    b_factors: Sequence[float] | np.ndarray | None = None,
    occupancies: np.ndarray | None = None,
    alternates: Alternates | None = None,
) -> list[str]:
    """Write the atoms of a model that was read, at other positions, as PDB.

    Atoms, order, names, chains, numbers, insertion codes, segments, occupancies and ATOM or HETATM are the
    input's. Alternate conformers that are not fitted keep their places in the input's order, moved by
    `openmm_density.models.alternates.moved_with_residues`. A model from a PDB file is written into that file's own lines
    (`openmm_density.models.kept_files.kept_pdb`). For one from an mmCIF file, TER follows each polymer.
    SSBOND and LINK hold the links of `header_of`, CISPEP the present cis peptides, CONECT the input's bonds with
    new serial numbers, and CRYST1 the cell, if there is one. Other records are those that
    `openmm_density.models.metadata.Metadata` keeps.

    Parameters
    ----------
    path : path-like
    model : Model
    positions : Quantity or array_like, shape (N, 3)
        Å where plain; from `openmm_density.models.preparation.Prepared.input_positions`.
    b_factors, occupancies : array_like, shape (N,), optional
        Å², and fractions; the input's where not given.
    alternates : Alternates, optional
        The model's alternate conformers as they are now, where they did not move rigidly with it.

    Returns
    -------
    list of str
        What of the input's file is not written, in sentences.

    Raises
    ------
    InputError
        The format cannot hold the model (`pdb_limit` tells beforehand), the numbers of atoms differ, a
        coordinate is not a number, or the file cannot be written.
    """
    positions, b_factors = _checked_for(path, model, positions, b_factors)
    limit = pdb_limit(model, positions)
    if limit is not None:
        raise InputError(
            f"the PDB format cannot hold this model ({limit})",
            source=path,
            remedy="use the mmCIF file",
        )
    atoms = atoms_of_model(_occupied(model, occupancies), positions, b_factors, alternates)
    lines, left_out = _pdb_lines(model, atoms)
    write_text(path, "\n".join([*lines, ""]))
    return left_out


def _occupied(model: Model, occupancies: np.ndarray | None) -> Model:
    """Return a model with other occupancies (N,), where there are any."""
    return model if occupancies is None else replace(model, occupancies=occupancies)


def _pdb_lines(model: Model, atoms: WrittenAtoms) -> tuple[list[str], list[str]]:
    """Return the lines of a PDB file, and sentences on the input's lines that are not in it."""
    options = gemmi.PdbWriteOptions()
    options.cryst1_record = model.cell is not None
    options.atom_records = options.end_record = False
    header = header_of(model)
    metadata = header.metadata
    own = metadata.text.split("\n")
    structure = structure_of(model.topology, atoms, header, merged=True)
    lines = [line.rstrip() for line in structure.make_pdb_string(options).splitlines()]
    if metadata.is_pdb:
        read = as_in_file(model)
        as_read = atoms_of_model(read, read.positions, read.b_factors, read.alternates)
        kept = kept_pdb(metadata, atoms, as_read, header, lines)
        if kept is not None:
            return kept, left_out_of_pdb(own, kept)
    lines = metadata.pdb_lines(lines)
    lines += _atom_lines(atoms, list(model.topology.residues()))
    serials = {record.serial: serial for serial, record in enumerate(atoms.records, start=1)}
    if len(serials) == len(atoms):
        lines += metadata.connect_lines(serials)
    lines.append("END")
    if not metadata.is_pdb:
        return lines, []
    anew = "Names in the input do not match lines with atoms: the PDB file's lines are written anew."
    return lines, [anew, *left_out_of_pdb(own, lines)]


def _atom_lines(atoms: WrittenAtoms, residues: Sequence[app.topology.Residue]) -> Iterator[str]:
    """Yield ATOM and HETATM lines of atoms in residues, with TER after each polymer."""
    owners = [residues[k] for k in atoms.residues.tolist()]
    occupancies, b_factors = np.clip(atoms.occupancies, -99.0, 999.0), np.clip(atoms.b_factors, -99.0, 999.99)
    numbers = zip(atoms.positions.tolist(), occupancies.tolist(), b_factors.tolist())
    for serial, (record, own, other, ((x, y, z), occupancy, b_factor)) in enumerate(
        zip(atoms.records, owners, [*owners[1:], None], numbers), start=1
    ):
        charge = f"{abs(record.charge)}{'-' if record.charge < 0 else '+'}" if record.charge else ""
        name = record.name if len(record.name) == 4 or len(record.element) == 2 else f" {record.name}"
        yield (
            f"{'HETATM' if record.hetero else 'ATOM  '}{serial:5d} {name:<4s}{record.altloc:1s}"
            f"{record.residue_name:>3s} "
            f"{record.chain:1s}{record.residue_number:4d}{record.insertion_code:1s}   "
            f"{x:8.3f}{y:8.3f}{z:8.3f}{occupancy:6.2f}{b_factor:6.2f}      {record.segment:<4.4s}"
            f"{record.element.upper():>2s}{charge:2s}"
        )
        if other is own:
            continue
        ends_chain = other is None or other.chain is not own.chain
        gap = other is not None and other.chain.id == own.chain.id and is_standard_polymer(other.name)
        if ends_chain and not gap and is_standard_polymer(own.name):
            yield "TER"


def _checked_for(
    path: str | os.PathLike[str],
    model: Model,
    positions: Any,
    b_factors: Sequence[float] | np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and B factors for each atom of a model, the model's own B factors where none are given."""
    count = len(model.records)
    return (
        _checked_positions(path, positions, count),
        _checked_b_factors(path, model.b_factors if b_factors is None else b_factors, count),
    )


def _checked_positions(path: str | os.PathLike[str], positions: Any, count: int) -> np.ndarray:
    positions = positions_in_angstrom(positions)
    if len(positions) != count:
        raise InputError(
            f"one position is needed for each of {count} atoms",
            source=path,
            found=len(positions),
            remedy="give those of the same model",
        )
    if not np.isfinite(positions).all():
        raise InputError(
            "a coordinate to write is not a number",
            source=path,
            remedy="look for what went wrong earlier in the run",
        )
    return positions


def _checked_b_factors(
    path: str | os.PathLike[str], b_factors: Sequence[float] | np.ndarray | None, count: int
) -> np.ndarray:
    values = np.zeros(count) if b_factors is None else np.asarray(b_factors, dtype=np.float64)
    if values.shape != (count,):
        raise InputError(
            f"one B factor is needed for each of {count} atoms",
            source=path,
            found=int(values.size),
            remedy="give those of the same model",
        )
    return np.nan_to_num(values)

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
from ..base.units import positions_in_angstrom, takes_units
from .chemistry.elements import UNKNOWN
from .chemistry.residue_names import is_standard_polymer
from .kept_files import (
    CifAtom,
    atom_block,
    atoms_as_written,
    input_document,
    kept_document,
    kept_pdb,
    left_out_of_cif,
    left_out_of_pdb,
)
from .model import Alternates, Link
from .predictions import add_local_metric, as_in_file, plddt_by_residue
from .structures import BACKBONE_BONDS, AtomRecord, Model
from .written_structures import Header, WrittenAtom, atoms_of, atoms_of_model, cis_peptides, structure_of

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
    header = replace(
        header,
        occupancies=np.append(model.occupancies, 1.0)[nearest],
        altlocs=tuple("" if k < 0 else model.records[k].altloc for k in nearest),
        unknown=frozenset(
            i for i, k in enumerate(prepared.input_index) if k >= 0 and model.records[k].element == UNKNOWN
        ),
        charges=tuple(0 if k < 0 else model.records[k].charge for k in prepared.input_index),
        rows=None if header.rows is None or nearest.min() < 0 else tuple(header.rows[k] for k in nearest),
        built=tuple(bool(k < 0) for k in prepared.input_index),
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


def document_of_models(
    path: str | os.PathLike[str],
    topology: app.Topology,
    models: Sequence[Any],
    b_factors: Sequence[float] | np.ndarray | None,
    header: Header,
) -> gemmi.cif.Document:
    """Return the mmCIF document of a topology at the positions of one or more models: the input's own, if it was mmCIF."""
    structures = [
        structure_for_cif(
            path, topology, positions, b_factors, header if number == 0 else replace(header, links=())
        )
        for number, positions in enumerate(models)
    ]
    first = structures[0]
    if header.rows is not None and len(header.rows) == topology.getNumAtoms():
        built = header.built or (False,) * len(header.rows)
        atoms = [_cif_atoms(structure, header.rows, built) for structure in structures]
        header = replace(header, links=_with_bonds(header.links, topology))
        return kept_document(header, atoms, list(first.cispeps))
    for number, structure in enumerate(structures[1:], start=2):
        model = structure[0]
        model.num = number
        first.add_model(model)
    return _cif_document(first, header)


def _cif_atoms(structure: gemmi.Structure, rows: Sequence[int], built: Sequence[bool]) -> list[CifAtom]:
    """Return the atoms of a structure as rows of their file."""
    names = ((cra.residue.name, cra.atom) for cra in structure[0].all())
    return [
        CifAtom(
            *(rows[atom.serial - 1], built[atom.serial - 1], atom.name, residue_name, atom.element.name),
            *(atom.altloc.strip("\0"), atom.pos.tolist(), atom.b_iso, atom.occ),
        )
        for residue_name, atom in names
    ]


def structure_for_cif(
    path: str | os.PathLike[str],
    topology: app.Topology,
    positions: Any,
    b_factors: Sequence[float] | np.ndarray | None,
    header: Header,
) -> gemmi.Structure:
    """Return what `write_cif` writes, as gemmi's structure of one model."""
    header = replace(header, links=_with_bonds(header.links, topology))
    records = _records_of(topology)
    positions = _checked_positions(path, positions, len(records))
    b_factors = _checked_b_factors(path, b_factors, len(records))
    occupancies = np.ones(len(records)) if header.occupancies is None else header.occupancies
    if header.altlocs is not None:
        records = [
            replace(record, altloc=altloc) if altloc != record.altloc else record
            for record, altloc in zip(records, header.altlocs, strict=True)
        ]
    for k in header.unknown:
        records[k] = replace(records[k], element=UNKNOWN)
    if header.charges is not None:
        records = [
            replace(record, charge=charge) if charge != record.charge else record
            for record, charge in zip(records, header.charges, strict=True)
        ]
    atoms = atoms_of(topology, records, positions, b_factors, occupancies)
    return structure_of(topology, atoms, header)


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
    rows = [atom.record.serial for atom in atoms]
    if header.rows is not None and len(set(rows)) == len(rows):
        atoms.sort(key=lambda atom: atom.record.serial)
        places = {atom.index: place for place, atom in enumerate(atoms) if atom.index >= 0}
        links = tuple(
            replace(link, first=places[link.first], second=places[link.second]) for link in header.links
        )
        peptides = cis_peptides(model.topology, {atom.index: atom for atom in atoms})
        document = kept_document(replace(header, links=links), [atoms_as_written(atoms)], peptides)
        left_out = left_out_of_cif(atom_block(input_document(header)), atom_block(document))
    else:
        left_out = []
        records = _without_blank_chains([atom.record for atom in atoms])
        atoms = [replace(atom, record=record) for atom, record in zip(atoms, records)]
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


def _records_of(topology: app.Topology) -> list[AtomRecord]:
    """Return records of a topology's atoms, as if read from a file."""
    return _without_blank_chains(
        [
            AtomRecord(
                name=atom.name,
                altloc="",
                element=atom.element.symbol if atom.element is not None else "X",
                residue_name=atom.residue.name,
                chain=atom.residue.chain.id.strip(),
                residue_number=_number(atom.residue),
                insertion_code=atom.residue.insertionCode.strip(),
                segment="",
                hetero=not is_standard_polymer(atom.residue.name),
                charge=0,
                serial=atom.index + 1,
            )
            for atom in topology.atoms()
        ]
    )


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


def _pdb_lines(model: Model, atoms: list[WrittenAtom]) -> tuple[list[str], list[str]]:
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
        as_read = atoms_of_model(read, read.positions, read.b_factors)
        kept = kept_pdb(metadata, atoms, as_read, header, lines)
        if kept is not None:
            return kept, left_out_of_pdb(own, kept)
    lines = metadata.pdb_lines(lines)
    lines += _atom_lines(atoms, list(model.topology.residues()))
    serials = {atom.record.serial: serial for serial, atom in enumerate(atoms, start=1)}
    if len(serials) == len(atoms):
        lines += metadata.connect_lines(serials)
    lines.append("END")
    if not metadata.is_pdb:
        return lines, []
    anew = "Names in the input do not match lines with atoms: the PDB file's lines are written anew."
    return lines, [anew, *left_out_of_pdb(own, lines)]


def _atom_lines(atoms: Sequence[WrittenAtom], residues: Sequence[app.topology.Residue]) -> Iterator[str]:
    """Yield ATOM and HETATM lines of atoms in residues, with TER after each polymer."""
    for serial, (atom, following) in enumerate(zip(atoms, [*atoms[1:], None]), start=1):
        record, (x, y, z) = atom.record, atom.position
        charge = f"{abs(record.charge)}{'-' if record.charge < 0 else '+'}" if record.charge else ""
        name = record.name if len(record.name) == 4 or len(record.element) == 2 else f" {record.name}"
        yield (
            f"{'HETATM' if record.hetero else 'ATOM  '}{serial:5d} {name:<4s}{record.altloc:1s}"
            f"{record.residue_name:>3s} "
            f"{record.chain:1s}{record.residue_number:4d}{record.insertion_code:1s}   "
            f"{x:8.3f}{y:8.3f}{z:8.3f}{min(max(atom.occupancy, -99.0), 999.0):6.2f}"
            f"{min(max(atom.b_factor, -99.0), 999.99):6.2f}      {record.segment:<4.4s}"
            f"{record.element.upper():>2s}{charge:2s}"
        )
        own = residues[atom.residue]
        other = None if following is None else residues[following.residue]
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

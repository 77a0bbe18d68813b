"""Write models: any topology as mmCIF, and one that was read as PDB, atom for atom as it came."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import gemmi
import numpy as np
from openmm import app

from openmm_density.errors import InputError
from openmm_density.models.structures import Model, is_backbone_bond, is_standard_polymer
from openmm_density.units import positions_in_angstrom
from openmm_density.whole_files import write_text


def write_cif(
    path: str | os.PathLike[str],
    topology: app.Topology,
    positions: Any,
    b_factors: Sequence[float] | np.ndarray | None = None,
) -> None:
    """Write all atoms of a topology as mmCIF.

    Chain ids and residue numbers are written as auth_asym_id and auth_seq_id, each chain of the topology as a
    label_asym_id of its own; a blank chain id becomes the first free letter. Bonds between residues
    that are not peptide or phosphate bonds are written as _struct_conn.

    Parameters
    ----------
    path : str or path-like
    topology : openmm.app.Topology
    positions : Quantity or array_like of shape (N, 3)
        Å where plain.
    b_factors : array_like of shape (N,), optional
        Å²; zero where not given.

    Raises
    ------
    InputError
        The numbers of atoms differ, a coordinate is not a number, or the file cannot be written.
    """
    count = topology.getNumAtoms()
    positions = _checked_positions(path, positions, count)
    b_factors = _checked_b_factors(path, b_factors, count)
    used = {chain.id.strip() for chain in topology.chains()}
    blank = next(letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in used or letter == "Z")
    structure = gemmi.Structure()
    structure.name = "model"
    model = gemmi.Model(1)
    addresses: list[gemmi.AtomAddress] = []
    for number, chain in enumerate(topology.chains()):
        written = gemmi.Chain(chain.id.strip() or blank)
        for position_in_chain, residue in enumerate(chain.residues(), start=1):
            new = gemmi.Residue()
            new.name = residue.name
            new.seqid = gemmi.SeqId(_number(residue), residue.insertionCode.strip() or " ")
            new.subchain = _label_asym(number)
            polymer = is_standard_polymer(residue.name)
            new.het_flag = "A" if polymer else "H"
            kind = "Polymer" if polymer else ("Water" if residue.name == "HOH" else "NonPolymer")
            new.entity_type = getattr(gemmi.EntityType, kind)
            if polymer:
                new.label_seq = position_in_chain
            for atom in residue.atoms():
                record = gemmi.Atom()
                record.name = atom.name
                record.element = gemmi.Element(atom.element.symbol if atom.element is not None else "X")
                record.pos = gemmi.Position(*positions[atom.index])
                record.b_iso = float(b_factors[atom.index])
                record.occ = 1.0
                record.serial = atom.index + 1
                new.add_atom(record)
                addresses.append(gemmi.AtomAddress(written.name, new.seqid, new.name, atom.name))
            written.add_residue(new)
        model.add_chain(written)
    structure.add_model(model)
    structure.ensure_entities()
    for a, b in topology.bonds():
        if a.residue is not b.residue and not is_backbone_bond(a, b):
            connection = gemmi.Connection()
            connection.name = f"link{len(structure.connections) + 1}"
            connection.type = (
                gemmi.ConnectionType.Disulf if a.name == b.name == "SG" else gemmi.ConnectionType.Covale
            )
            connection.partner1, connection.partner2 = addresses[a.index], addresses[b.index]
            connection.asu = gemmi.Asu.Same
            structure.connections.append(connection)
    groups = gemmi.MmcifOutputGroups(False)
    groups.atoms = groups.entity = groups.struct_asym = groups.conn = groups.block_name = True
    write_text(path, structure.make_mmcif_document(groups).as_string())


def _number(residue: app.topology.Residue) -> int:
    try:
        return int(residue.id)
    except ValueError:
        return residue.index + 1


def _label_asym(number: int) -> str:
    letters = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters


def pdb_limit(model: Model, positions: Any) -> str | None:
    """Tell in words why the PDB format cannot hold a model; None where it can."""
    positions = positions_in_angstrom(positions)
    if len(model.records) > 99999:
        return f"it has {len(model.records)} atoms and the format holds 99999"
    for record in model.records:
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


def write_pdb(
    path: str | os.PathLike[str],
    model: Model,
    positions: Any,
    b_factors: Sequence[float] | np.ndarray | None = None,
) -> None:
    """Write the atoms of a model that was read, at other positions, as PDB.

    Atoms, order, names, chains, numbers, insertion codes, segments, occupancies and ATOM or HETATM are the
    input's; the alternate location column is empty, since one conformer was kept. TER follows each polymer.

    Parameters
    ----------
    path : str or path-like
    model : Model
    positions : Quantity or array_like of shape (N, 3)
        Å where plain; from :meth:`openmm_density.models.preparation.Prepared.input_positions`.
    b_factors : array_like of shape (N,), optional
        Å²; the input's where not given.

    Raises
    ------
    InputError
        The format cannot hold the model (:func:`pdb_limit` tells beforehand), the numbers of atoms differ, a
        coordinate is not a number, or the file cannot be written.
    """
    count = len(model.records)
    positions = _checked_positions(path, positions, count)
    b_factors = _checked_b_factors(path, model.b_factors if b_factors is None else b_factors, count)
    limit = pdb_limit(model, positions)
    if limit is not None:
        raise InputError(f"{path}: the PDB format cannot hold this model ({limit}); use the mmCIF file.")
    lines = []
    if model.cell is not None:
        a, b, c, alpha, beta, gamma = model.cell
        lines.append(f"CRYST1{a:9.3f}{b:9.3f}{c:9.3f}{alpha:7.2f}{beta:7.2f}{gamma:7.2f} P 1           1")
    atoms = list(model.topology.atoms())
    for index, (record, atom) in enumerate(zip(model.records, atoms)):
        x, y, z = positions[index]
        occupancy = model.occupancies[index]
        charge = f"{abs(record.charge)}{'-' if record.charge < 0 else '+'}" if record.charge else ""
        name = record.name if len(record.name) == 4 or len(record.element) == 2 else f" {record.name}"
        lines.append(
            f"{'HETATM' if record.hetero else 'ATOM  '}{index + 1:5d} {name:<4s} {record.residue_name:>3s} "
            f"{record.chain:1s}{record.residue_number:4d}{record.insertion_code:1s}   "
            f"{x:8.3f}{y:8.3f}{z:8.3f}{min(max(occupancy, -99.0), 999.0):6.2f}"
            f"{min(max(b_factors[index], -99.0), 999.99):6.2f}      {record.segment:<4.4s}"
            f"{record.element.upper():>2s}{charge:2s}"
        )
        following = atoms[index + 1] if index + 1 < count else None
        ends_chain = following is None or following.residue.chain is not atom.residue.chain
        gap = (
            following is not None
            and following.residue.chain.id == atom.residue.chain.id
            and is_standard_polymer(following.residue.name)
        )
        if ends_chain and not gap and is_standard_polymer(atom.residue.name):
            lines.append("TER")
    write_text(path, "\n".join([*lines, "END", ""]))


def _checked_positions(path: str | os.PathLike[str], positions: Any, count: int) -> np.ndarray:
    positions = positions_in_angstrom(positions)
    if len(positions) != count:
        raise InputError(
            f"{path}: {len(positions)} positions were given for {count} atoms; give one for each."
        )
    if not np.isfinite(positions).all():
        raise InputError(
            f"{path}: a coordinate to write is not a number; the run has gone wrong before this."
        )
    return positions


def _checked_b_factors(
    path: str | os.PathLike[str], b_factors: Sequence[float] | np.ndarray | None, count: int
) -> np.ndarray:
    values = np.zeros(count) if b_factors is None else np.asarray(b_factors, dtype=np.float64)
    if values.shape != (count,):
        raise InputError(f"{path}: {values.size} B factors were given for {count} atoms; give one for each.")
    return np.nan_to_num(values)

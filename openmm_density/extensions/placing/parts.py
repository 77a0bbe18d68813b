"""The rigid bodies of models, and the model that they make where they were placed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import gemmi
import networkx
import numpy as np
from openmm import app
from scipy.ndimage import uniform_filter1d
from scipy.spatial import cKDTree

from ...base.atomic_files import write_text
from ...base.cif_files import read_cif
from ...base.errors import InputError, as_argument
from ...models.chemistry.residue_names import is_standard_polymer
from ...models.confidence import UNSURE
from ...models.model import Model
from ...models.predicted_errors import predicted_domains
from ...models.predictions import add_local_metric, plddt_by_residue, residue_confidence, stretches_of
from ...models.structure_files import write_model_cif
from ...restraints import find_domains
from .assembly import ChainLink
from .bodies import Kind, PlacedBody
from .search import Body

CHAINS, DOMAINS = "chains", "domains"
# Å between neighbours' Cα or P atoms from which on a chain is broken, and between those of parts that touch.
_BROKEN, _TOUCHING, _CONTACTS = {"CA": 4.5, "P": 8.0}, 7.0, 3
# Residues of a body: what has fewer goes with what is next to it.
_SMALLEST = 15
# Å between neighbours along a chain, and how much farther two domains' ends may be that are placed rigidly.
_STEP, _SLACK = 3.8, 4.0
# Residues on either side of a hinge that go with both domains.
_HINGE = 2


@dataclass(frozen=True)
class RigidPart:
    """A model, the body of each of its atoms, and its first among all kinds of bodies."""

    model: Model
    copies: int
    body_of: np.ndarray
    first: int

    @property
    def n_bodies(self) -> int:
        """How many rigid bodies a copy has."""
        return int(self.body_of.max()) + 1

    def moved(self, placed: Sequence[PlacedBody], kinds: Sequence[Kind]) -> Model:
        """Return the model with each body where it was placed; a chain that leads from one to another is not torn."""
        alternates, shares = self.model.alternates, self._shares()
        positions, elsewhere = np.zeros_like(self.model.positions), np.zeros_like(alternates.positions)
        for body, each in enumerate(placed):
            centre = kinds[self.first + body].centre
            for given, found, residues in (
                (self.model.positions, positions, _residue_of(self.model)),
                (alternates.positions, elsewhere, alternates.residues),
            ):
                share = shares[residues, body]
                rows = share > 0
                there = (given[rows] - centre) @ each.rotation.T + each.place
                found[rows] += share[rows, None] * there
        return replace(
            self.model,
            positions=positions,
            alternates=alternates.moved(elsewhere),
            cell=None,
            space_group="",
            metadata=self.model.metadata.elsewhere(),
        )

    def _shares(self) -> np.ndarray:
        """Return how far each residue goes with each body, (R, B): near hinges with both."""
        residues = list(self.model.topology.residues())
        body_of = np.zeros(len(residues), dtype=np.int64)
        body_of[_residue_of(self.model)] = self.body_of
        shares = np.eye(self.n_bodies)[body_of]
        for chain in self.model.topology.chains():
            rows = [each.index for each in chain.residues() if is_standard_polymer(each.name)]
            if rows:
                shares[rows] = uniform_filter1d(shares[rows], 2 * _HINGE + 1, axis=0, mode="nearest")
        return shares


def rigid_parts(
    models: Sequence[tuple[Model, int]], cut: str
) -> tuple[list[RigidPart], list[Kind], list[ChainLink]]:
    """Return the bodies of models with their numbers of copies, and the chains between them.

    Parameters
    ----------
    models : sequence of (Model, int)
    cut : str
        "chains": each chain is a body; "domains": each domain, by the errors that a prediction expects, else each part that the
        chain is broken into, else by contacts; else each model is one.

    Raises
    ------
    InputError
        If a model has no body that could be placed, or one domain only.
    """
    parts: list[RigidPart] = []
    kinds: list[Kind] = []
    links: list[ChainLink] = []
    for model, copies in models:
        labels = _labels(model, cut)
        names = _names(model, labels, cut)
        body_of = labels[_residue_of(model)]
        parts.append(RigidPart(model, copies, body_of, len(kinds)))
        rows = [_rows(model, body_of == k) for k in range(int(labels.max()) + 1)]
        if cut == DOMAINS:
            links += _links(model, labels, rows, len(kinds))
        kinds += [_kind(model, members, name, copies) for members, name in zip(rows, names)]
    return parts, kinds, links


def _kind(model: Model, rows: np.ndarray, name: str, copies: int) -> Kind:
    atoms = list(model.topology.atoms())
    positions, centre = model.positions[rows], model.positions[rows].mean(axis=0)
    trace = np.array([_is_trace(atoms[row]) for row in rows])
    if trace.sum() < 4:
        trace[:] = True
    names = np.array([atoms[row].residue.name for row in rows])[trace]
    weights = np.array([float(atoms[row].element.atomic_number) for row in rows])
    return Kind(name, Body(positions - centre, weights, trace, names), copies, centre)


def _is_trace(atom: object) -> bool:
    return atom.name in _BROKEN and is_standard_polymer(atom.residue.name)  # type: ignore[attr-defined]


def _rows(model: Model, members: np.ndarray) -> np.ndarray:
    """Return the atoms of a body that are searched: no hydrogens, no waters, nothing that a prediction is not sure of."""
    plddt = residue_confidence(model)
    heavy = [
        atom.index
        for atom in model.topology.atoms()
        if members[atom.index]
        and atom.element is not None
        and atom.element.atomic_number > 1
        and atom.residue.name != "HOH"
    ]
    residue_of = _residue_of(model)
    sure = [k for k in heavy if plddt is None or not plddt[residue_of[k]] < UNSURE]
    rows = np.array(sure if len(sure) > len(heavy) / 4 else heavy, dtype=np.int64)
    if len(rows) < 20:
        raise InputError(
            "has too few atoms to be placed in a map",
            source=model.path,
            found=len(rows),
            remedy="give a larger model",
        )
    return rows


def _residue_of(model: Model) -> np.ndarray:
    return np.array([atom.residue.index for atom in model.topology.atoms()])


def _labels(model: Model, cut: str) -> np.ndarray:
    """Return the body of each residue, from 0 without gaps."""
    residues = list(model.topology.residues())
    first = [next(residue.atoms()).index for residue in residues]
    chains = [model.records[k].chain for k in first]
    if cut == CHAINS:
        labels = np.unique(chains, return_inverse=True)[1]
    elif cut == DOMAINS:
        labels = _domains(model)
    else:
        return np.zeros(len(residues), dtype=np.int64)
    # What has no chain of its own, as ligands and waters, goes with what is nearest.
    polymer = np.array([is_standard_polymer(residue.name) for residue in residues])
    sizes = np.bincount(labels[polymer & (labels >= 0)], minlength=int(labels.max()) + 1)
    owned = polymer & (labels >= 0) & (sizes[np.maximum(labels, 0)] >= _SMALLEST)
    if not owned.any():
        return np.zeros(len(residues), dtype=np.int64)
    residue_of = _residue_of(model)
    kept = owned[residue_of]
    stays = owned | np.isin(labels, labels[owned]) if cut == CHAINS else owned
    goes = np.flatnonzero(~stays[residue_of])
    distances, nearest = cKDTree(model.positions[kept]).query(model.positions[goes])
    of_nearest = labels[residue_of[kept]][nearest]
    order = np.argsort(distances, kind="stable")[::-1]  # A residue's nearest atom comes last
    labels[residue_of[goes[order]]] = of_nearest[order]
    return np.unique(labels, return_inverse=True)[1]


def _domains(model: Model) -> np.ndarray:
    """Return the domain of each residue, -1 for those of none."""
    errors = model.confidence.errors if model.confidence is not None else None
    unknown = errors is None
    labels = _pieces(model) if unknown else predicted_domains(np.nan_to_num(errors, nan=np.inf))
    if unknown and labels.max() < 1:
        labels = find_domains(model.topology, model.positions)
    if len(np.unique(labels[labels >= 0])) < 2:
        raise InputError(
            "has no domains that could be told apart by its contacts",
            source=model.path,
            remedy=f"give the errors that its prediction expects by {as_argument('pae')}, or the domains as models of their own",
        )
    return labels


def _pieces(model: Model) -> np.ndarray:
    """Return the pieces that chains are broken into; pieces that touch are one."""
    residues = list(model.topology.residues())
    labels = np.full(len(residues), -1)
    trace = {}
    for atom in model.topology.atoms():
        if _is_trace(atom):
            trace.setdefault(atom.residue.index, atom.index)
    piece, previous = -1, None
    for k, atom in trace.items():
        name = next(a.name for a in residues[k].atoms() if a.index == atom)
        joined = previous is not None and residues[previous].chain is residues[k].chain
        near = (
            joined
            and np.linalg.norm(model.positions[atom] - model.positions[trace[previous]]) < _BROKEN[name]
        )
        piece += not near
        labels[k], previous = piece, k
    graph = networkx.Graph()
    graph.add_nodes_from(range(piece + 1))
    rows = list(trace)
    pairs = cKDTree(model.positions[[trace[k] for k in rows]]).query_pairs(_TOUCHING, output_type="ndarray")
    of = labels[rows][pairs]
    touching, count = np.unique(np.sort(of[of[:, 0] != of[:, 1]], axis=1), axis=0, return_counts=True)
    graph.add_edges_from(map(tuple, touching[count >= _CONTACTS]))
    number = np.full(piece + 2, -1)
    for k, members in enumerate(networkx.connected_components(graph)):
        number[list(members)] = k
    return number[labels]


def _names(model: Model, labels: np.ndarray, cut: str) -> list[str]:
    residues = list(model.topology.residues())
    names = []
    for k in range(int(labels.max()) + 1):
        members = [residue for residue, label in zip(residues, labels) if label == k]
        if cut == CHAINS:
            names.append(f"{model.path.name} chain {members[0].chain.id}")
        elif cut == DOMAINS:
            polymer = [each for each in members if is_standard_polymer(each.name)]
            names.append(f"{model.path.name} {stretches_of(polymer)}")
        else:
            names.append(model.path.name)
    return names


def _links(model: Model, labels: np.ndarray, rows: Sequence[np.ndarray], first: int) -> list[ChainLink]:
    """Return the chain's connections between domains that follow each other."""
    place = [{int(atom): k for k, atom in enumerate(each)} for each in rows]
    links = []
    previous = None
    for atom in model.topology.atoms():
        if not _is_trace(atom) or atom.index not in place[labels[atom.residue.index]]:
            continue
        before, here = (None if each is None else model.records[each.index] for each in (previous, atom))
        # A broken chain is several ones of the topology.
        if before is not None and before.chain == here.chain:
            a, b = (int(labels[each.residue.index]) for each in (previous, atom))
            if a != b:
                gap = abs(here.residue_number - before.residue_number)
                most = _STEP * max(gap, 1) + _SLACK
                links.append(
                    ChainLink(first + a, place[a][previous.index], first + b, place[b][atom.index], most)
                )
        previous = atom
    return links


def bodies_of_atoms(parts: Sequence[RigidPart]) -> np.ndarray:
    """Return the body of each atom of all copies of all parts, (N,), numbered one after the other."""
    numbers, first = [], 0
    for part in parts:
        for _ in range(part.copies):
            numbers.append(first + part.body_of)
            first += part.n_bodies
    return np.concatenate(numbers)


def joined(
    parts: Sequence[RigidPart], kinds: Sequence[Kind], placed: Sequence[Sequence[Sequence[PlacedBody]]]
) -> tuple[app.Topology, np.ndarray]:
    """Return the atoms of all copies of all parts, without their bonds, and where they are, (N, 3) in Å."""
    topology, positions = app.Topology(), []
    for part, copies in zip(parts, placed):
        for bodies in copies:
            positions.append(part.moved(bodies, kinds).positions)
            for chain in part.model.topology.chains():
                new = topology.addChain()
                for residue in chain.residues():
                    of = topology.addResidue(residue.name, new)
                    for atom in residue.atoms():
                        topology.addAtom(atom.name, atom.element, of)
    return topology, np.concatenate(positions)


def write_placed(
    path: str | os.PathLike[str],
    parts: Sequence[RigidPart],
    kinds: Sequence[Kind],
    placed: Sequence[Sequence[Sequence[PlacedBody]]],
) -> dict[tuple[str, int, str], int]:
    """Write all copies of all parts as one model; return the body of each residue by chain, number and insertion code.

    Chains keep their names where these are free. `placed`: of each part, of each copy, of each body where it is; the bodies are
    numbered in this order.
    """
    single = len(parts) == 1 and parts[0].copies == 1
    structure, merged, plddt = gemmi.Structure(), gemmi.Model(1), {}
    structure.name = "placed"
    used, body_of, number = set(), {}, 0
    for part, copies in zip(parts, placed):
        for bodies in copies:
            moved = part.moved(bodies, kinds)
            names = {}
            for chain in dict.fromkeys(record.chain for record in part.model.records):
                names[chain] = chain if single else _free_name(chain, used)
                used.add(names[chain])
            for record, body in zip(part.model.records, part.body_of):
                key = names[record.chain], record.residue_number, record.insertion_code
                body_of[key] = number + int(body)
            number += part.n_bodies
            if single:
                known = moved.confidence
                if (
                    known is not None and known.column is not None
                ):  # so that it is read as the file that it comes from
                    moved = replace(moved, b_factors=known.plddt)
                write_model_cif(path, moved, moved.positions)
                return body_of
            own = _structure(moved)
            for connection in own.connections:
                for partner in (connection.partner1, connection.partner2):
                    partner.chain_name = names.get(partner.chain_name, partner.chain_name)
                connection.name = f"link{len(structure.connections) + 1}"
                structure.connections.append(connection)
            for chain in own[0]:
                chain.name = names.get(chain.name, chain.name)
                merged.add_chain(chain)
            plddt |= {(names[chain], *residue): p for (chain, *residue), p in plddt_by_residue(moved).items()}
    structure.add_model(merged)
    structure.assign_subchains(force=True)
    structure.setup_entities()
    structure.assign_label_seq_id(force=True)
    groups = gemmi.MmcifOutputGroups(True)
    groups.cell = groups.symmetry = groups.scale = False
    document = structure.make_mmcif_document(groups)
    add_local_metric(document.sole_block(), plddt, "")
    write_text(path, document.as_string())
    return body_of


def _structure(model: Model) -> gemmi.Structure:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.cif"
        write_model_cif(path, model, model.positions)
        structure = gemmi.make_structure_from_block(read_cif(path)[0])
    structure.merge_chain_parts()
    return structure


def _free_name(name: str, used: set[str]) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    others = (one + two for one in ("", *letters) for two in letters)
    return next(each for each in (name, *others) if each and each not in used)

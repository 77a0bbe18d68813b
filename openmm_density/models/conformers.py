"""Choose a conformer for each residue of a file."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

import gemmi
import numpy as np


@dataclass(frozen=True)
class AlternateAtom:
    """An atom of a conformer that was not chosen, as its file names it, behind so many atoms of the chosen one, less one."""

    atom: gemmi.Atom
    residue_name: str
    segment: str
    hetero: bool
    after: int


@dataclass
class ReadResidue:
    """One residue while it is read: the file's names, the conformer chosen, and the atoms of the others.

    Its segment is that of its first atoms; `segments` are those of all, and `parts` are numbers that ascend as they stand in the
    file.
    """

    name: str
    standard_name: str
    chain: str
    number: int
    insertion_code: str
    segment: str
    subchain: str
    hetero: bool
    after_gap: bool
    atoms: list[gemmi.Atom]
    atom_names: list[str] = field(default_factory=list, init=False)
    elements: list[str] = field(default_factory=list, init=False)
    alternates: list[AlternateAtom] = field(default_factory=list, init=False)
    segments: list[str] = field(default_factory=list, init=False)
    parts: list[int] = field(default_factory=list, init=False)

    def position(self, name: str) -> np.ndarray | None:
        """Return the place of the atom of a name in Å, if there is one."""
        for atom, atom_name in zip(self.atoms, self.atom_names):
            if atom_name == name:
                return np.array(atom.pos.tolist())
        return None


def kept_residues(model: gemmi.Model) -> list[ReadResidue]:
    """Choose conformers; return the residues in the file's order, each with the atoms of the conformers that were not chosen."""
    kept: list[ReadResidue] = []
    for chain in model:
        first_of_chain = True
        group: list[gemmi.Residue] = []
        for residue in [*chain, None]:
            same_place = (
                residue is not None
                and group
                and residue.seqid == group[-1].seqid
                and residue.segment == group[-1].segment
                and residue.name != group[-1].name
                and all(atom.has_altloc() for atom in [*group[-1], *residue])
            )
            if group and not same_place:
                best = max(group, key=lambda candidate: np.mean([atom.occ for atom in candidate]))
                atoms, alternates = _conformers(group, best)
                # A name that comes again without an altloc is another residue with the same number, as
                # in water boxes whose numbers ran out.
                parts = _split_at_repeated_name(atoms)
                for part in parts:
                    kept.append(
                        ReadResidue(
                            name=best.name,
                            standard_name=best.name,
                            chain=chain.name.strip(),
                            number=best.seqid.num if best.seqid.num is not None else 0,
                            insertion_code=best.seqid.icode.strip(),
                            segment=best.segment.strip(),
                            subchain=best.subchain,
                            hetero=best.het_flag == "H",
                            after_gap=first_of_chain,
                            atoms=part,
                        )
                    )
                    kept[-1].segments = [kept[-1].segment] * len(part)
                    kept[-1].parts = [len(kept)] * len(part)
                    first_of_chain = False
                # Conformers of several residues of one number are those of the first.
                kept[-len(parts)].alternates = [
                    replace(each, after=min(each.after, len(parts[0]) - 1)) for each in alternates
                ]
                group = []
            if residue is not None and len(residue):
                group.append(residue)
    return kept


def _conformers(
    group: list[gemmi.Residue], best: gemmi.Residue
) -> tuple[list[gemmi.Atom], list[AlternateAtom]]:
    """Return the atoms of the chosen conformer of residues in one place, and those of the others."""
    chosen: list[gemmi.Atom] = []
    others: list[AlternateAtom] = []
    for candidate in group:
        keys = _chosen_keys(candidate) if candidate is best else None
        for atom in candidate:
            if keys is not None and (not atom.has_altloc() or (atom.name, atom.altloc) in keys):
                chosen.append(atom)
            else:
                others.append(
                    AlternateAtom(
                        atom,
                        candidate.name,
                        candidate.segment.strip(),
                        candidate.het_flag == "H",
                        len(chosen) - 1,
                    )
                )
    return chosen, others


def _chosen_keys(residue: gemmi.Residue) -> set[tuple[str, str]]:
    """Return the names and labels of the atoms to keep, of those that have a label."""
    occupancies: dict[str, list[float]] = defaultdict(list)
    for atom in residue:
        if atom.has_altloc():
            occupancies[atom.altloc].append(atom.occ)
    if not occupancies:
        return set()
    chosen = max(occupancies, key=lambda altloc: np.mean(occupancies[altloc]))
    best: dict[str, gemmi.Atom] = {}
    for atom in residue:
        if not atom.has_altloc():
            continue
        rival = best.get(atom.name)
        if rival is None or (atom.altloc == chosen, atom.occ) > (rival.altloc == chosen, rival.occ):
            best[atom.name] = atom
    # gemmi gives a new Python object at each iteration: identity is the (name, altloc) pair.
    return {(atom.name, atom.altloc) for atom in best.values()}


def _split_at_repeated_name(atoms: list[gemmi.Atom]) -> list[list[gemmi.Atom]]:
    parts: list[list[gemmi.Atom]] = [[]]
    names: set[str] = set()
    for atom in atoms:
        if atom.name in names:
            parts.append([])
            names = set()
        names.add(atom.name)
        parts[-1].append(atom)
    return parts

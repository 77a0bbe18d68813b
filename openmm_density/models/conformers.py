"""Choose a conformer for each residue of a file."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import gemmi
import numpy as np


@dataclass
class ReadResidue:
    """One residue while it is read: the file's names and the conformer kept."""

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
    atom_names: list[str] = field(default_factory=list)
    elements: list[str] = field(default_factory=list)

    def position(self, name: str) -> np.ndarray | None:
        """Return the place of the atom of a name in Å, if there is one."""
        for atom, atom_name in zip(self.atoms, self.atom_names):
            if atom_name == name:
                return np.array(atom.pos.tolist())
        return None


def kept_residues(model: gemmi.Model) -> tuple[list[ReadResidue], int]:
    """Choose conformers; give the residues in the file's order and the number of atoms left out."""
    kept: list[ReadResidue] = []
    dropped = 0
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
                dropped += sum(len(candidate) for candidate in group if candidate is not best)
                atoms = _one_conformer(best)
                dropped += len(best) - len(atoms)
                # A name that comes again without an altloc is another residue with the same number, as
                # in water boxes whose numbers ran out.
                for part in _split_at_repeated_name(atoms):
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
                    first_of_chain = False
                group = []
            if residue is not None and len(residue):
                group.append(residue)
    return kept, dropped


def _one_conformer(residue: gemmi.Residue) -> list[gemmi.Atom]:
    occupancies: dict[str, list[float]] = defaultdict(list)
    for atom in residue:
        if atom.has_altloc():
            occupancies[atom.altloc].append(atom.occ)
    if not occupancies:
        return list(residue)
    chosen = max(occupancies, key=lambda altloc: np.mean(occupancies[altloc]))
    best: dict[str, gemmi.Atom] = {}
    for atom in residue:
        if not atom.has_altloc():
            continue
        rival = best.get(atom.name)
        if rival is None or (atom.altloc == chosen, atom.occ) > (rival.altloc == chosen, rival.occ):
            best[atom.name] = atom
    # gemmi gives a new Python object at each iteration: identity is the (name, altloc) pair.
    keys = {(atom.name, atom.altloc) for atom in best.values()}
    return [atom for atom in residue if not atom.has_altloc() or (atom.name, atom.altloc) in keys]


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

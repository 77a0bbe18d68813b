"""What a fit made worse in the geometry of what it writes, alternate conformers and what was built among it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import gemmi
import numpy as np

from ..base.wording import listing
from ..fitting.doubt import Doubt, Place
from ..fitting.fit_result import FitResult
from ..fitting.written_atoms import labels_of, placed_alternates
from ..models.chemistry.elements import UNKNOWN
from ..models.chemistry.planes import PlaneSet
from ..models.conformer_topology import PlacedConformers
from ..models.model import Model
from ..models.preparation import Prepared
from ..validation.flatness import with_conjugated_systems
from ..validation.local_geometry import LocalGeometry, Worse

MOST_NAMED = 10
"""Of a kind; the summary has all."""

_ORGANIC = frozenset({"H", "D", "C", "N", "O", "S", "P", "Se", "F", "Cl", "Br", "I", "Fe"})

_SENTENCES = {
    "element": ("elements", "atoms have another element than in the file"),
    "bond": ("stretched", "bonds have unusual lengths"),
    "angle": ("angles", "angles were bent"),
    "centre": ("chirality", "chiral centres were inverted, or are flat"),
    "plane": ("bent", "flat groups were bent"),
    "metal": ("metal", "metals moved, or bind other atoms than before"),
    "molecule": ("molecules", "molecules turned or moved within their surroundings"),
    "contact": ("contacts", "atoms that are not bonded are too close"),
    "apart": ("contacts", "atoms that were at bonding distance, without a bond, moved apart"),
}
"""Of each kind the kind of doubt, and what is wrong."""
_REMEDIES = {
    "contact": "correct the model there, or name the bond in its file (LINK, CONECT, _struct_conn)",
    "apart": "this is right where the start overlapped, as placed domains may; if there is a bond, name it in the file (LINK, "
    "CONECT, _struct_conn)",
    "element": "correct their names or elements in the file",
    "molecule": "check whether the map shows them there",
    "metal": "look at the model there, and whether its file names the right bonds (LINK, CONECT, _struct_conn)",
}


def worse_in_fit(prepared: Prepared, result: FitResult, planes: PlaneSet) -> list[Worse]:
    """Return what is worse in the model that a fit writes than in the one that it was given."""
    model, index, n = prepared.model, prepared.prepared_index, prepared.topology.getNumAtoms()
    bonds = [(a.index, b.index) for a, b in model.topology.bonds()]
    bonds += [(link.first, link.second) for link in model.links if not link.symmetry]
    of_file = index[np.array(bonds, dtype=np.int64).reshape(-1, 2)]
    own = planes.with_atoms(index)
    built = prepared.input_index < 0
    built[list(prepared.mended_ends)] = True
    return changed_elements(model) + _worse(
        LocalGeometry(
            prepared.topology,
            prepared.positions,
            built=built,
            bonds=[*map(tuple, of_file[(of_file >= 0).all(axis=1)].tolist()), *prepared.links],
            planes=with_conjugated_systems(prepared.topology, own),
            labels=labels_of(prepared),
        ),
        result.final[:n],
        model,
        placed_alternates(result, prepared),
    )


def changed_elements(model: Model) -> list[Worse]:
    """Return the atoms (atomic numbers) that are written as other elements than the file gives, or, without any, names tell."""
    found = []
    for record in (*model.records, *model.alternates.records):
        given, now = record.file_element, record.element
        told_by_name = now in _ORGANIC or now.upper() == record.residue_name
        # What a reader makes of a name such as CA where a file has no column of elements.
        is_standard = gemmi.find_tabulated_residue(record.residue_name).is_standard()
        guessed = is_standard and len(given) > 1 and record.name.upper().startswith(given.upper())
        if (
            given not in ("", now)
            and not guessed
            and not (given == UNKNOWN and told_by_name)
            and {given, now} != {"H", "D"}
        ):
            numbers = [float(gemmi.Element(each).atomic_number) for each in (given, now)]
            name = record.describe() + (f".{record.altloc}" if record.altloc else "")
            found.append(Worse("element", (name,), *numbers, (numbers[0],) * 2))
    return found


def worse_of_models(before: Model, after: Model, planes: PlaneSet) -> list[Worse]:
    """Return what is worse in a model than in another of the same atoms."""
    before_geometry = LocalGeometry(
        before.topology,
        before.positions,
        bonds=[(link.first, link.second) for link in before.links if not link.symmetry],
        planes=with_conjugated_systems(before.topology, planes),
        labels=[record.altloc for record in before.records],
    )
    return _worse(before_geometry, after.positions, before, PlacedConformers.of_model(after))


def _worse(
    geometry: LocalGeometry, positions: np.ndarray, model: Model, conformers: PlacedConformers | None
) -> list[Worse]:
    """Return what is worse, in the conformers that were not chosen as well."""
    if conformers is not None:
        others = conformers.others
        geometry = LocalGeometry(
            others.joined,
            np.concatenate([geometry.positions, model.alternates.positions[others.alternates]]),
            built=np.append(geometry.built, np.zeros(len(others), dtype=bool)),
            bonds=geometry.bonds,
            planes=geometry.planes,
            labels=[*geometry.labels, *others.labels],
        )
        positions = np.concatenate([positions, conformers.positions])
    return geometry.worse(positions)


def worse_doubts(found: Iterable[Mapping[str, Any]]) -> list[Doubt]:
    """Return a doubt about each kind of what became worse."""
    kinds: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for each in found:
        kinds[each["kind"]].append(each)
    doubts = []
    for kind, (doubt, what) in _SENTENCES.items():
        if not kinds[kind]:
            continue
        named = listing([_in_words(each) for each in kinds[kind]], MOST_NAMED)
        remedy = _REMEDIES.get(kind, "look at the model there")
        places = tuple(Place.of(each["atoms"]) for each in kinds[kind])
        doubts.append(Doubt(doubt, f"{what}: {named}: {remedy}.", places))
    return doubts


def _in_words(each: Mapping[str, Any]) -> str:
    """Return as in ``A DG 5 O3' - A DC 6 P (1.60 to 2.22 Å, usual 1.61)``."""
    before, after, (low, high) = each["initial"], each["final"], each["usual"]
    if each["kind"] == "centre":
        # What is usual has the sign of the hand that it should have.
        course = "flat" if low * after > 0 or abs(after) < 0.1 else "inverted"
        return f"{each['atoms']} ({course}{', built or flat before' if before is None else ''})"
    if " - " not in each["atoms"] and each["kind"] in ("metal", "molecule"):
        return f"{each['atoms']} (moved by {after:.1f} Å)"
    if each["kind"] == "element":
        given, now = (gemmi.Element(int(number)).name for number in (before, after))
        return f"{each['atoms']} ({given} to {now})"
    form, unit = (".0f", "°") if each["kind"] == "angle" else (".2f", " Å")
    course = f"{after:{form}}{unit}, built" if before is None else f"{before:{form}} to {after:{form}}{unit}"
    if each["kind"] == "apart":
        usual = f"bonds are up to {high:{form}}"
    elif high is None:
        usual = f"usual from {low:{form}}"
    elif low == high:
        usual = f"usual {low:{form}}"
    else:
        usual = f"usual {low:{form}} to {high:{form}}"
    return f"{each['atoms']} ({course}, {usual})"

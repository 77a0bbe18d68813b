"""Places models in a map, each copy, chain or domain as a rigid body, and writes what they make together."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from ...base.atomic_files import write_text
from ...fitting.rigid_bodies import RigidBodies
from ...maps.density_map import DensityMap
from ...models.model import Model
from ...models.structures import read_model
from .assembly import ChainLink
from .bodies import LEAST, Kind, PlacedBody, PlacingTask, place_bodies
from .parts import RigidPart, bodies_of_atoms, joined, rigid_parts, write_placed
from .search import torch_threads
from .words import parse_parts

_OnEachBody = list[list[list[PlacedBody]]]


def place_parts(
    words: Sequence[str],
    cut: str,
    density_map: DensityMap,
    resolution: float,
    path: Path,
    *,
    read: Callable[[str], Model] = read_model,
    device: str = "cpu",
    threads: int | None = None,
    tell: Callable[[int, int, str], None] = lambda *_: None,
) -> bool:
    """Write a model of what is placed in a map, and beside it, as JSON, how sure each place is.

    Parameters
    ----------
    words : sequence of str
        Models, as in ``B.cif:3`` for three copies.
    cut : str
        What is rigid: "chains", "domains", or anything else for whole models.
    density_map : DensityMap
    resolution : float
        In Å.
    path : Path
        The mmCIF file to write.
    read : callable
        Returns the model in a file.
    device, threads
        Where maps are transformed: "cpu", or "cuda" where torch has it; and threads of a CPU, all by default.
    tell : callable
        Told how many rotations of a body were tried, of how many, and of which.

    Returns
    -------
    bool
        Whether any of the models is a prediction.

    Raises
    ------
    InputError
        If a model cannot be read, is larger than the map, or there is no room for a copy.
    """
    if not torch.cuda.is_available():
        device = "cpu"
    models = [(read(str(part.path)), part.copies) for part in parse_parts(words)]
    parts, kinds, links = rigid_parts(models, cut)
    task = PlacingTask(density_map, resolution, links, device, threads, tell)
    found = place_bodies(kinds, task)
    if device == "cuda":
        torch.cuda.empty_cache()  # OpenMM's Contexts need it
    placed, similarity = _best_together(parts, kinds, found, task)
    chains = write_placed(path, parts, kinds, placed)
    figures = {"cut": cut, "similarity": similarity, "bodies": _all_figures(placed, kinds, chains)}
    write_text(path.with_suffix(".json"), json.dumps(figures, indent=2) + "\n")
    return any(model.confidence is not None for model, _ in models)


def _all_figures(
    placed: _OnEachBody, kinds: Sequence[Kind], body_of: Mapping[tuple[str, int, str], int]
) -> list[dict[str, Any]]:
    """Return the figures of each body, with the chains of the residues that are of it."""
    flat = [each for copies in placed for bodies in copies for each in bodies]
    chains = [sorted({key[0] for key, body in body_of.items() if body == n}) for n in range(len(flat))]
    return [_figures(each, kinds[each.kind].label, own) for each, own in zip(flat, chains)]


def _figures(placed: PlacedBody, label: str, chains: Sequence[str]) -> dict[str, Any]:
    other = None
    if placed.other is not None:
        centre = [round(float(x), 2) for x in placed.other]
        other = {
            "centre": centre,
            "turned_by": round(placed.other_turned, 1),
            "less": round(placed.other_less, 2),
        }
    return {
        "body": label,
        "chains": list(chains),
        "centre": [round(float(x), 2) for x in placed.place],
        "score": round(placed.score, 2),
        "other_place": other,
    }


def _by_copy(
    part: RigidPart, kinds: Sequence[Kind], found: Sequence[PlacedBody], links: Sequence[ChainLink]
) -> list[list[PlacedBody]]:
    """Return the bodies of each copy of a part: of several copies those that its chain joins best."""
    of = [[each for each in found if each.kind == part.first + body] for body in range(part.n_bodies)]
    copies = [[first] for first in of[0]]
    for body in range(1, part.n_bodies):
        apart = [[_apart(copy, each, kinds, links) for each in of[body]] for copy in copies]
        for copy, column in zip(*linear_sum_assignment(np.array(apart))):
            copies[copy].append(of[body][column])
    return copies


def _apart(
    copy: Sequence[PlacedBody], body: PlacedBody, kinds: Sequence[Kind], links: Sequence[ChainLink]
) -> float:
    """Return how far the ends of the chain are apart between a body and those of a copy, in Å."""
    total = 0.0
    for other in copy:
        for link in links:
            if {link.first, link.second} == {other.kind, body.kind}:
                ends = {link.first: link.first_atom, link.second: link.second_atom}
                a, b = (
                    each.rotation @ kinds[each.kind].body.atoms[ends[each.kind]] + each.place
                    for each in (other, body)
                )
                total += float(np.linalg.norm(a - b))
    return total


def _best_together(
    parts: Sequence[RigidPart], kinds: Sequence[Kind], found: Sequence[PlacedBody], task: PlacingTask
) -> tuple[_OnEachBody, list[float]]:
    """Return bodies refined together, from where they were found or another start, whichever ends best."""
    sets = [[_by_copy(part, kinds, found, task.links) for part in parts]]
    if all(part.copies == 1 for part in parts):
        sets.append(_as_given(sets[0], kinds))
    if any(part.n_bodies > 1 for part in parts):
        sets += [_with_surest(sets[0], kinds, most) for most in (LEAST, np.inf)]
    with torch_threads(task.threads):
        together = (_together(parts, kinds, placed, task.density_map, task.resolution) for placed in sets)
        placed, similarity = max(together, key=lambda each: each[1][1])
        return [[list(map(_scored, copy)) for copy in copies] for copies in placed], similarity


def _scored(placed: PlacedBody) -> PlacedBody:
    return replace(placed, score=placed.score_near(placed.rotation, placed.place))


def _as_given(placed: _OnEachBody, kinds: Sequence[Kind]) -> _OnEachBody:
    """Return bodies where their files have them."""
    return [
        [
            [replace(each, rotation=np.eye(3), place=kinds[each.kind].centre, other=None) for each in copy]
            for copy in copies
        ]
        for copies in placed
    ]


def _with_surest(placed: _OnEachBody, kinds: Sequence[Kind], most: float) -> _OnEachBody:
    """Return bodies whose score is below the most where the model has them beside its surest one, as that was found."""

    def of_copy(copy: Sequence[PlacedBody]) -> list[PlacedBody]:
        surest = max(copy, key=lambda each: each.score)
        places = [kinds[each.kind].centre - kinds[surest.kind].centre for each in copy]
        return [
            replace(each, rotation=surest.rotation, place=surest.rotation @ there + surest.place, other=None)
            if each.score < most
            else each
            for each, there in zip(copy, places)
        ]

    return [list(map(of_copy, copies)) for copies in placed]


def _together(
    parts: Sequence[RigidPart],
    kinds: Sequence[Kind],
    placed: _OnEachBody,
    density_map: DensityMap,
    resolution: float,
) -> tuple[_OnEachBody, list[float]]:
    """Return bodies where all of them together fit best, near where they are, with the similarity before and after."""
    rigid = RigidBodies(*joined(parts, kinds, placed), density_map, resolution, bodies_of_atoms(parts))
    before = rigid.similarity(rigid.start(), rigid.centres)[0]
    after, rotations, places = rigid.refined(rigid.start(), rigid.centres)
    number = 0
    moved: _OnEachBody = []
    for copies in placed:
        moved.append([])
        for copy in copies:
            moved[-1].append([])
            for each in copy:
                turn = rotations[number].as_matrix()
                place = turn @ (each.place - rigid.centres[number]) + places[number]
                moved[-1][-1].append(replace(each, rotation=turn @ each.rotation, place=place))
                number += 1
    return moved, [float(before), float(after)]

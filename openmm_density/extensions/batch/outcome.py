"""What comes of a batch when its fits are over: scores in free maps, the consensus of each map's models, tables and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...base.errors import InputError
from ...maps.density_map import DensityMap
from ...models.structures import Model, read_model
from ...report.fit_page import corrections_of, read_contents
from ...report.page import write_page
from ...report.results import FITTED, model_with_input_atoms
from ...validation.correlation import cc_mask
from .consensus import (
    ALL_COPIES,
    AMPLITUDES,
    NOT_FITTED,
    R_FREE,
    Consensus,
    Ranking,
    consensus_of,
    write_consensus,
)
from .held_out import HeldOut
from .job_results import JobResult, rows_of, write_tables
from .jobs import Job
from .page import MOST_MODELS, MapPage, batch_page, map_page

PAGE = "batch.html"


@dataclass(frozen=True)
class MapOutcome:
    """What the fits into one map came to."""

    map: str  # Its file
    results: list[JobResult]  # Of fits that finished, the best first
    models: list[Model]  # Theirs
    # By which they are ordered: R-free where all hold out the same reflections of one crystal; else the correlation
    # with the free map, where there is one for all of them, of all copies where all have symmetry, or with the map
    ranking: Ranking
    consensus: Consensus | None = None  # Where there are two at least, of one molecule
    problem: str | None = None  # Why there is none

    @property
    def correlations(self) -> list[float]:
        """The values of the ranking."""
        return [*self.ranking.values]

    @property
    def verdict(self) -> str:
        """What to think of it, in words."""
        if self.consensus is not None:
            return self.consensus.verdict
        article = "an" if self.ranking.figure == R_FREE else "a"
        best = f"The best is {self.results[0].job.name}, with {article} {self.ranking.in_words(0)}."
        return best if self.problem is None else f"{best} There is no consensus: {self.problem}"


def write_outcome(
    folder: Path, jobs: Sequence[Job], results: Mapping[str, JobResult], command: str | None = None
) -> list[MapOutcome]:
    """Write the tables, pages and consensus models of a batch, and return what it came to, map by map."""
    free: dict[str, float] = {}
    maps = dict.fromkeys(job.map for job in jobs)
    own = {
        each: [results[job.name] for job in jobs if job.map == each and job.name in results] for each in maps
    }
    outcomes = [found for each in maps if (found := _outcome(each, own[each], free)) is not None]
    single = len(outcomes) == 1
    names = {each.map: "" if single else f"_{_name(each, outcomes)}" for each in outcomes}
    told = []
    for each in outcomes:
        if each.consensus is not None:
            path = folder / f"consensus{names[each.map]}.cif"
            write_consensus(path, each.models[each.consensus.best], each.consensus)
            told.append({"map": each.map, "file": path.name, **each.consensus.as_dict()})
    rows = rows_of(jobs, results, folder.absolute(), free)
    write_tables(folder, rows, {"consensus": told})
    pages = [_shown(each, f"batch{names[each.map]}.html") for each in outcomes]
    if not single:
        for page in pages:
            of_map = [row for row in rows if row["map"] == page.map]
            write_page(folder / page.file, map_page(page, of_map, command))
    write_page(folder / PAGE, batch_page(pages, rows, command))
    return outcomes


def _outcome(density_map: str, results: Sequence[JobResult], free: dict[str, float]) -> MapOutcome | None:
    """Return what the fits into a map came to, and note their correlations with free maps."""
    results = [result for result in results if result.is_finished]
    if not results:
        return None
    models = _sharing_topologies([read_model(result.folder / FITTED) for result in results])
    for result in results:
        if result.job.free_map is not None:
            free[result.job.name] = _correlation_with_free_map(result, result.job.free_map)
    ranking = _ranking(results, free)
    order = ranking.order
    outcome = MapOutcome(
        density_map,
        [results[number] for number in order],
        [models[number] for number in order],
        ranking.taken(order),
    )
    if len(results) < 2:
        return outcome
    names = [result.job.name for result in outcome.results]
    try:
        return replace(outcome, consensus=consensus_of(outcome.models, names, outcome.ranking))
    except InputError as error:
        return replace(outcome, problem=str(error))


def _ranking(results: Sequence[JobResult], free: Mapping[str, float]) -> Ranking:
    """Return by what fits into one map, or to amplitudes of one file, are ordered; see `MapOutcome`."""

    def of_all(name: str) -> tuple[float, ...] | None:
        found = [result.figures.get(name) for result in results]
        return None if None in found else tuple(found)

    r_free = of_all("r_free")
    if r_free is not None and len({HeldOut.of(result.job) for result in results}) == 1:
        return Ranking(r_free, AMPLITUDES, R_FREE)
    if all(result.job.name in free for result in results):
        return Ranking(tuple(free[result.job.name] for result in results), NOT_FITTED)
    of_copies = of_all("cc_assembly")
    if of_copies is not None:
        return Ranking(of_copies, ALL_COPIES)
    return Ranking(tuple(result.figures.get("cc") or float("nan") for result in results))


def _correlation_with_free_map(result: JobResult, free_map: str) -> float:
    """Return the CC of what a fit reports on, which is the atoms of its input."""
    model = read_model(model_with_input_atoms(result.folder) or result.folder / FITTED)
    density_map = corrections_of(result.summary).apply(DensityMap.from_file(free_map))
    return round(cc_mask(density_map, model.topology, model.positions, result.job.resolution), 6)


def _sharing_topologies(models: Sequence[Model]) -> list[Model]:
    """Return the models, those with the same atoms with one topology, which a page then holds once."""
    first: dict[tuple[Any, ...], Model] = {}
    shared = []
    for model in models:
        key = tuple(
            (atom.name, atom.residue.name, atom.residue.id, atom.residue.chain.id)
            for atom in model.topology.atoms()
        )
        same = first.setdefault(key, model)
        shared.append(replace(model, topology=same.topology))
    return shared


def _name(outcome: MapOutcome, outcomes: Sequence[MapOutcome]) -> str:
    """Return a name of a map that no other one has."""
    stem = Path(outcome.map).name.partition(".")[0]
    alike = [each for each in outcomes if Path(each.map).name.partition(".")[0] == stem]
    return stem if len(alike) == 1 else f"{stem}{alike.index(outcome) + 1}"


def _shown(outcome: MapOutcome, file: str) -> MapPage:
    best = outcome.results[0]
    contents = read_contents(best.folder)
    return MapPage(
        file,
        outcome.map,
        outcome.verdict,
        [result.job.name for result in outcome.results[:MOST_MODELS]],
        outcome.models[:MOST_MODELS],
        outcome.ranking.taken(range(len(outcome.results[:MOST_MODELS]))),
        outcome.consensus,
        contents.density_map,
        best.job.resolution or best.summary["resolution"],
    )

"""Fits to the measured amplitudes of crystals: which are compared by R-free, how they go on, and what comes of them."""

import csv
import json
from dataclasses import replace

import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.batch import Batch, Job, consensus_of, jobs_of, read_jobs
from openmm_density.extensions.batch.consensus import ALL_COPIES, AMPLITUDES, R_FREE, Ranking
from openmm_density.extensions.batch.held_out import HeldOut, check_held_out
from openmm_density.extensions.batch.job_folder import JobFolder
from openmm_density.extensions.batch.outcome import write_outcome
from openmm_density.models import read_model
from openmm_density.report.results import CRYSTAL_SETTINGS


@pytest.fixture
def files(tmp_path):
    for name in ("one.pdb", "two.pdb", "map.mrc", "data.mtz"):
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.fixture
def outcome(fits, tmp_path):
    """Return what comes of the two fits of the fragment where their figures and jobs are others."""

    def come(figures, **of_job):
        data = tmp_path / "data.mtz"
        data.write_text("")
        results = {}
        for number, (result, own) in enumerate(zip(fits.results.values(), figures)):
            each = {name: value(number) if callable(value) else value for name, value in of_job.items()}
            job = replace(result.job, **{"map": str(data), "resolution": None, **each})
            results[job.name] = replace(result, job=job, figures={**result.figures, **own})
        (found,) = write_outcome(tmp_path, [each.job for each in results.values()], results, None)
        return found

    return come


def test_r_free_decides_among_fits_to_the_same_amplitudes(outcome, tmp_path):
    found = outcome(
        [
            {"cc": 0.9, "r_work": 0.2, "r_free": 0.31, "r_free_before": 0.4},
            {"cc": 0.8, "r_work": 0.22, "r_free": 0.25, "r_free_before": 0.4},
        ]
    )
    assert [result.job.name for result in found.results] == ["b", "a"] and found.correlations == [0.25, 0.31]
    assert found.verdict.startswith("2 models of one crystal: ")
    assert found.verdict.endswith(
        "The best is b, by its R-free of 0.250 against amplitudes that it was not fitted to."
    )
    rows = list(csv.DictReader((tmp_path / "batch.csv").read_text().splitlines()))
    assert [(row["r_work"], row["r_free"], row["resolution"]) for row in rows] == [
        ("0.2", "0.31", ""),
        ("0.22", "0.25", ""),
    ]
    page = (tmp_path / "batch.html").read_text()
    assert "Best R-free" in page and all(each in page for each in ("R-work", "R-free before", "b (0.250)"))
    assert json.loads((tmp_path / "batch.json").read_text())["consensus"][0]["best"] == "b"


@pytest.mark.parametrize(
    "of_job",
    [
        {"resolution": lambda number: 2.0 + number},
        {"arguments": lambda number: ("--free-value", str(number))},
        {"arguments": lambda number: ("--make-free-flags",), "seed": lambda number: number},
    ],
)
def test_where_others_are_held_out_the_correlation_decides(outcome, of_job):
    found = outcome([{"cc": 0.9, "r_free": 0.31}, {"cc": 0.8, "r_free": 0.25}], **of_job)
    assert [result.job.name for result in found.results] == ["a", "b"]
    assert "by its CC of 0.900 with the map that it was fitted into" in found.verdict


def test_all_copies_decide_where_there_is_symmetry(outcome):
    found = outcome([{"cc": 0.9, "cc_assembly": 0.7}, {"cc": 0.8, "cc_assembly": 0.75}], resolution=5.0)
    assert [result.job.name for result in found.results] == ["b", "a"] and found.ranking.of == ALL_COPIES
    assert "by its CC of 0.750 of all copies with the map that they were fitted into" in found.verdict


def test_a_consensus_begins_with_the_lowest_r_free(fragment):
    model = read_model(fragment / "a.pdb")
    far = replace(model, positions=model.positions + 9.0)
    ranking = Ranking((0.31, 0.25, 0.28), AMPLITUDES, R_FREE)
    found = consensus_of([model, far, model], ["a", "b", "c"], ranking)
    assert found.best == 1 and found.clusters == [[2, 0], [1]]
    assert "2 like c (0.280), 1 like b (0.250)" in found.verdict


def test_amplitudes_need_no_resolution_and_maps_do(files):
    (job,) = jobs_of([files / "one.pdb"], [files / "data.mtz"], None, files / "out", cycles=2)
    assert job.words == [str(files / "one.pdb"), str(files / "data.mtz"), "--seed", "0", "--cycles", "2"]
    with pytest.raises(InputError, match="one: resolution is required for a map: give it"):
        jobs_of([files / "one.pdb"], [files / "map.mrc"], None, files / "out")


def test_a_table_may_mix_crystals_and_maps(files):
    (files / "jobs.csv").write_text(
        "model,map,resolution,cycles,amplitudes,make-free-flags\n"
        'one.pdb,data.mtz,,3,"FP,SIGFP",yes\n'
        "two.pdb,map.mrc,5,,,\n"
        "two.pdb,data.mtz,2.5,,,no\n"
    )
    crystal, of_map, cut = read_jobs(files / "jobs.csv", files / "out")
    assert crystal.resolution is None
    assert crystal.arguments == ("--cycles", "3", "--amplitudes", "FP,SIGFP", "--make-free-flags")
    assert (of_map.resolution, of_map.arguments, cut.resolution, cut.arguments) == (5.0, (), 2.5, ())


def test_what_is_held_out_is_the_same_for_other_options(files):
    job = Job("a", str(files / "a"), "one.pdb", "data.mtz", None, 1, ("--steps", "3"))
    assert HeldOut.of(job) == HeldOut.of(replace(job, seed=2, arguments=("--cycles", "2")))
    made = replace(job, arguments=("--make-free-flags",))
    assert HeldOut.of(made) != HeldOut.of(job)
    check_held_out([made, replace(made, name="b"), replace(made, map="other.mtz", seed=2)])
    with pytest.raises(
        InputError, match="draws the free flags with the seed, so that a and b would hold out other"
    ):
        check_held_out([made, replace(made, name="b", seed=2)])


def test_a_free_map_judges_no_crystal(files):
    jobs = jobs_of([files / "one.pdb"], [files / "data.mtz"], None, files / "out", free_map=files / "map.mrc")
    with pytest.raises(InputError, match=r"data\.mtz is fitted as measured amplitudes, which R-free judges"):
        Batch(jobs)


def test_a_fit_to_amplitudes_goes_on_in_the_cycle_that_was_under_way(files):
    (job,) = jobs_of([files / "one.pdb"], [files / "data.mtz"], None, files / "out")
    folder = JobFolder(job)
    new = [*job.words, "--output", job.folder]
    assert folder.arguments() == new
    folder.note_job()
    (folder.path / CRYSTAL_SETTINGS).write_text("{}")
    # It ended before its first cycle.
    assert folder.check() == "failed" and folder.arguments() == [*new, "--overwrite"]
    (folder.path / "cycle_01").mkdir()
    (folder.path / "cycle_01" / "summary.json").write_text("{}")
    assert folder.check() == "unfinished" and folder.arguments() == ["--resume", job.folder]
    other = JobFolder(replace(job, arguments=("--cycles", "2")))
    with pytest.raises(InputError, match="it holds an unfinished fit with other options"):
        other.check()
    assert other.check(overwrite=True) == "replaced"
    assert list(folder.path.glob("cycle_*")) == [] and not (folder.path / CRYSTAL_SETTINGS).exists()
    assert "--resume" not in other.arguments()

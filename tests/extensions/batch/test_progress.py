"""What a terminal shows of a batch, and that a pipe is quiet."""

import io

import pytest
from rich.console import Console

from openmm_density.extensions.batch.batch import MOST_ROWS, BatchProgress
from openmm_density.extensions.batch.job_results import JobResult


@pytest.fixture
def progress(jobs):
    return BatchProgress([job.name for job in jobs], is_shown=False, link="http://127.0.0.1:9/status")


def drawn(progress):
    file = io.StringIO()
    Console(file=file, width=120).print(progress.table())
    return file.getvalue().splitlines()


def test_what_runs_is_a_row_and_the_rest_is_counted(progress, jobs):
    progress.update("a_seed0", {"stage": "start-up", "cc": None})
    progress.update(
        "a_seed1", {"stage": "heat", "step": 400, "total": 2000, "cc": 0.71234, "left": "0:01:10"}
    )
    progress.end(JobResult(jobs[2], "failed", error="no"))
    progress.end(JobResult(jobs[3], "finished"))
    head, names, *rows = drawn(progress)
    assert head.startswith("1 of 4 fits finished (1 before), 1 failed, 2 running, 0 waiting, 0:00:0")
    assert head.endswith("; http://127.0.0.1:9/status")
    assert names.split() == ["job", "stage", "step", "CC", "left"]
    assert [row.split() for row in rows] == [
        ["a_seed0", "start-up"],
        ["a_seed1", "heat", "400/2000", "0.712", "0:01:10"],
    ]


def test_a_report_that_comes_late_does_not_bring_a_job_back(progress, jobs):
    progress.end(JobResult(jobs[0], "finished", attempts=1))
    progress.update(jobs[0].name, {"stage": "heat"})
    assert progress.sentence().startswith("1 of 4 fits finished, 0 running, 3 waiting")


def test_of_very_many_the_number_is_told():
    progress = BatchProgress([f"job{number}" for number in range(100)], is_shown=False)
    for number in range(50):
        progress.update(f"job{number}", {"stage": "heat"})
    lines = drawn(progress)
    assert len(lines) == MOST_ROWS + 3 and lines[-1] == f"and {50 - MOST_ROWS} more"


def test_a_pipe_is_quiet(jobs, capfd):
    with BatchProgress([job.name for job in jobs]) as progress:
        assert not progress.is_shown
        progress.update("a_seed0", {"stage": "heat"})
    assert capfd.readouterr() == ("", "")

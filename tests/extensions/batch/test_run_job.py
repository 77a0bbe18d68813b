"""One job: it begins, goes on or stands, and is tried three times."""

import json
import os
import threading
import time
from contextlib import nullcontext
from dataclasses import replace

import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.batch import Batch
from openmm_density.extensions.batch.engines import ThisMachine
from openmm_density.extensions.batch.run_job import MemoryRoom, run_job
from openmm_density.fitting.locks import FolderLock


def test_what_a_fit_tells_is_passed_on_and_its_figures_are_the_result(jobs, program):
    settings = program(
        "tell(stage='heat', step=3, total=9, cc=.5, left='0:01:00'); finish(cc_final=0.75, doubts=['a'])"
    )
    told = []
    result = run_job(jobs[0], settings, told.append)
    assert told == [
        {"stage": "start-up"},
        {"stage": "heat", "step": 3, "total": 9, "cc": 0.5, "left": "0:01:00"},
    ]
    assert (result.state, result.attempts, result.error) == ("finished", 1, None)
    assert result.figures["cc"] == 0.75 and result.figures["doubts"] == 1
    assert result.peak_memory > 1e6
    again = run_job(jobs[0], settings, told.append)
    assert (again.state, again.attempts, again.figures) == ("finished", 0, result.figures)


def test_a_fit_that_is_killed_goes_on(jobs, program):
    code = """
    unfinished = folder / "unfinished"
    if "--resume" in arguments:
        (unfinished / "command.json").unlink(); unfinished.rmdir()
        finish(cc_final=0.5)
    else:
        unfinished.mkdir(); (unfinished / "command.json").write_text("{}")
        os.kill(os.getpid(), 9)
    """
    result = run_job(jobs[0], program(code), lambda told: None)
    assert (result.state, result.attempts) == ("finished", 2)


def test_the_third_failure_is_told_with_its_sentence(jobs, program):
    settings = program(
        "print('a line'); print('openmm-density fit: error: it blew up.', file=sys.stderr); sys.exit(1)"
    )
    result = run_job(jobs[0], settings, lambda told: None)
    assert (result.state, result.attempts) == ("failed", 3)
    assert result.error == "it blew up."
    killed = run_job(jobs[1], program("os.kill(os.getpid(), 11)"), lambda told: None)
    assert "was ended by SIGSEGV" in killed.error and "fit.log" in killed.error


REFUSAL = "print('openmm-density fit: error: the map is upside down.', file=sys.stderr); sys.exit(2)"


def test_what_was_given_and_cannot_be_used_is_told_at_once(jobs, program):
    result = run_job(jobs[0], program(REFUSAL), lambda told: None)
    assert (result.state, result.attempts, result.error) == ("failed", 1, "the map is upside down.")


def test_a_platform_that_is_not_here_is_refused_before_the_first_job(jobs, tmp_path):
    wrong = [jobs[0], replace(jobs[1], arguments=("--platform", "Abacus"))]
    with pytest.raises(InputError, match=r'platform must be a platform of this OpenMM, found "Abacus"'):
        list(Batch(wrong).run())
    assert not (tmp_path / "out").exists()


def test_others_finish_where_one_fails(jobs, program, tmp_path):
    batch = Batch(jobs, tmp_path / "out")
    settings = program("sys.exit(1) if folder.name.startswith('a_seed0') else finish(cc_final=.5)")
    results = list(batch.run_on(nullcontext(ThisMachine()), settings))
    assert [result.state for result in results] == ["failed", *["finished"] * 3]
    rows = json.loads((tmp_path / "out" / "batch.json").read_text())["jobs"]
    assert [row["state"] for row in rows] == ["failed", *["finished"] * 3]
    assert rows[0]["error"] == "it ended with status 1" and rows[1]["cc"] == 0.5
    assert (tmp_path / "out" / "batch.csv").read_text().count("\n") == 5


def test_a_fit_that_another_process_runs_is_waited_for(jobs, program):
    settings = program("finish(cc_final=.5)")
    held = FolderLock(jobs[0].folder)
    told = []
    thread = threading.Thread(target=lambda: told.append(run_job(jobs[0], settings, told.append)))
    thread.start()
    while not told:
        time.sleep(0.01)
    assert told[0]["stage"].startswith(f"waiting for the fit in its folder (process {os.getpid()} on ")
    held.release()
    thread.join()
    assert told[-1].state == "finished"


def test_a_folder_of_another_job_is_refused_unless_it_may_be_overwritten(jobs, program):
    run_job(jobs[0], program("finish(cc_final=.5)"), lambda told: None)
    Batch(jobs)
    other = [replace(jobs[0], arguments=("--steps", "70"))]
    with pytest.raises(
        InputError,
        match=r"a finished fit with other options \(.*--steps 60 .*; now --steps 70\): choose another",
    ):
        Batch(other)
    replaced = Batch(other, overwrite=True)
    assert replaced.notes == ["a_seed0: had a fit of other options or files, replaced"]
    assert not os.path.exists(os.path.join(jobs[0].folder, "summary.json"))


def test_files_that_have_changed_are_refused(jobs, program, tmp_path):
    model = tmp_path / "model.pdb"
    model.write_text("")
    job = replace(jobs[0], model=str(model))
    run_job(job, program("finish(cc_final=.5)"), lambda told: None)
    model.write_text("other")
    with pytest.raises(InputError, match=r"model.pdb: it has changed since the fit in .*a_seed0 began"):
        Batch([job])


def test_an_earlier_fit_of_no_batch_is_kept(jobs):
    os.makedirs(jobs[0].folder)
    with open(os.path.join(jobs[0].folder, "summary.json"), "w") as file:
        file.write("{}")
    with pytest.raises(InputError, match="it holds an earlier fit that is not of this batch"):
        Batch(jobs)


def test_jobs_larger_than_memory_allows_wait():
    memory = MemoryRoom(100 << 20)
    entered, leave = [], {name: threading.Event() for name in "abcd"}
    known = {name: threading.Event() for name in "abcd"}  # that it waits, or has entered

    def take(name, megabytes):
        with memory.room(megabytes << 20, known[name].set):
            entered.append(name)
            known[name].set()
            leave[name].wait(60)

    # The second one waits for the first, and the third, for which there is room, behind it. The last needs more than there is.
    threads = []
    for name, megabytes in (("a", 60), ("b", 80), ("c", 10), ("d", 500)):
        threads.append(threading.Thread(target=take, args=(name, megabytes)))
        threads[-1].start()
        assert known[name].wait(60)
    assert entered == ["a"]
    leave["a"].set()
    while len(entered) < 3:
        time.sleep(0.01)
    assert sorted(entered) == ["a", "b", "c"]
    for event in leave.values():
        event.set()
    for thread in threads:
        thread.join()
    assert entered[-1] == "d"

"""``openmm-density batch``: what it refuses in one sentence, and what it says before and after."""

import json
import os
import sys
from collections import Counter

import gemmi
import numpy as np
import pytest

from openmm_density.cli import build_parser
from openmm_density.extensions.batch import Job, batch, devices
from openmm_density.extensions.batch.command_arguments import jobs_asked

from ...cli.commands import run
from ..crystals.simulated import usual_columns, write_mtz

SLURM = 'cores = 8\nmemory = "16 GB"\nwalltime = "04:00:00"\nqueue = "gpu"\njob_extra_directives = ["--gres=gpu:1"]\n'


@pytest.fixture
def files(folder, tmp_path, monkeypatch):
    for name in ("model.pdb", "target.pdb", "target.mrc"):
        (tmp_path / name).symlink_to(folder / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


MODELS = ("model.pdb", "target.pdb", "--map", "target.mrc", "--resolution", 5, "--output", "many")


def test_a_dry_run_prints_each_fit_as_a_user_would_type_it(files, capsys):
    asked = ("--seeds", 2, "--seed", 5, "--steps", 600, "--reference", "target.pdb", "--dry-run")
    assert run("batch", *MODELS, *asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[-1] == "4 fits"
    words = f"{files}/model.pdb {files}/target.mrc --resolution 5 --seed 6 --reference {files}/target.pdb --steps 600"
    assert lines[1] == f"model_seed6: openmm-density fit {words} --output {files}/many/model_seed6"
    assert not (files / "many").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (MODELS[:-2], "--output is required: give MODEL …, --map MAP … and --resolution, or --table FILE.csv, and"),
        ((), "MODEL, MAP, --resolution, --output are required: give MODEL …, --map MAP … and --resolution, or --table"),
        ((*MODELS, "--table", "jobs.csv"), "--table already names all models and maps: leave MODEL out."),
        ((*MODELS, "--seeds", 0), "--seeds must be 1 or more, found 0: give 1 or more."),
        (("no.pdb", *MODELS), "no.pdb: there is no such file: check its path."),
        ((*MODELS, "--gpus", "7"), "--gpus must be numbers of GPUs of this machine, found 7, of none: leave it out"),
        ((*MODELS, "--gpus", "a"), '--gpus must be numbers of GPUs, as in 0,1, found "a" (see openmm-density batch --help)'),
        ((*MODELS, "--workers", 0), "--workers must be 1 or more, found 0: give 1 or more."),
        ((*MODELS, "--strength", -1), "--strength must be"),
        ((*MODELS, "--platform", "Abacus"), '--platform must be a platform of this OpenMM, found "Abacus": use one of'),
        ((*MODELS, "--atoms", "foo"), '--atoms must be "heavy", "all" or an mdtraj selection'),
        (("model.pdb", "--map", ".", *MODELS[4:]), ".: it is a folder, not a file: check its path."),
        (("target.mrc", *MODELS[2:]), "target.mrc: it is a map or its structure factors (MRC), not a model: give"),
        ((*MODELS, "--queue", "slurm"), "--queue-options is required: give a TOML file"),
        ((*MODELS, "--queue", "slurm", "--queue-options", "no.toml"), "no.toml: it cannot be read (No such file or directory)"),
        ((*MODELS, "--queue-options", "no.toml"), "--queue-options is for a queue: add --queue slurm."),
        (("--table", "jobs.csv", "--output", "many"), "jobs.csv: it cannot be read (No such file or directory): "),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_in_one_sentence(files, arguments, said, capsys, monkeypatch):
    monkeypatch.setattr(devices, "visible_gpus", lambda: [])
    try:
        status = run("batch", *arguments)
    except SystemExit as ended:
        status = ended.code
    found = capsys.readouterr().err
    assert status == 2 and found.startswith(f"openmm-density batch: error: {said}"), found
    assert found.count("\n") == 1
    assert not (files / "many").exists()


def test_what_needs_dask_says_how_to_install_it(files, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert run("batch", *MODELS, "--scheduler", "tcp://127.0.0.1:9") == 2
    said = '--scheduler needs Dask, which is not installed: pip install "openmm-density[batch]"'
    assert said in capsys.readouterr().err


def test_an_option_that_fit_does_not_know_is_refused_before_any_fit(files, capsys):
    (files / "jobs.csv").write_text("model,map,strenght\nmodel.pdb,target.mrc,3\n")
    assert run("batch", "--table", "jobs.csv", "--resolution", 5, "--output", "many") == 2
    assert (
        'error: 001_model: "--strenght" is not understood: did you mean --strength?'
        in capsys.readouterr().err
    )


SCRIPTS = {
    "slurm": (
        SLURM,
        ["#SBATCH -p gpu", "#SBATCH --cpus-per-task=8", "#SBATCH -t 04:00:00", "#SBATCH --gres=gpu:1"],
    ),
    "pbs": (
        'cores = 8\nmemory = "16 GB"\nwalltime = "04:00:00"\nresource_spec = "select=1:ncpus=8:ngpus=1:mem=16gb"\n',
        ["#PBS -l select=1:ncpus=8:ngpus=1:mem=16gb", "#PBS -l walltime=04:00:00"],
    ),
    "lsf": (
        'cores = 8\nmemory = "16 GB"\nwalltime = "04:00"\njob_extra_directives = ["-gpu num=1"]\n',
        ["#BSUB -n 8", "#BSUB -W 04:00", "#BSUB -gpu num=1"],
    ),
    "htcondor": (
        'cores = 8\nmemory = "16 GB"\ndisk = "4 GB"\n[job_extra_directives]\nrequest_gpus = "1"\n',
        ["RequestCpus = MY.DaskWorkerCores", "MY.DaskWorkerCores = 8", "request_gpus = 1", "Queue"],
    ),
}


@pytest.mark.parametrize("system", SCRIPTS)
def test_a_dry_run_prints_the_script_of_a_queue(files, system, capsys):
    pytest.importorskip("dask_jobqueue", reason='no dask-jobqueue: pip install "openmm-density[batch]"')
    text, directives = SCRIPTS[system]
    (files / "queue.toml").write_text(f"fits = 4\n{text}")
    assert run("batch", *MODELS, "--queue", system, "--queue-options", "queue.toml", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert set(directives) <= set(lines)
    (command,) = [line for line in lines if "distributed.cli.dask_worker" in line]
    # The last one counts: a thread of the worker for each fit.
    assert "--nthreads 4" in command and command.rindex("--nthreads 4") > command.rindex("--nthreads 8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cores = 8\n", "queue.toml: memory is required: add memory"),
        ("cores 8\n", "queue.toml: it is not TOML ("),
        (
            'cores = 8\nmemory = "1 GB"\nfits = 0\n',
            "queue.toml: fits must be a whole number above 0, found 0: give 1.",
        ),
        (
            'cores = 8\nmemory = "1 GB"\nquue = "gpu"\n',
            "queue.toml: dask-jobqueue does not take it for slurm (",
        ),
    ],
)
def test_options_of_a_queue_that_cannot_be_used_are_refused(files, text, said, capsys):
    pytest.importorskip("dask_jobqueue", reason='no dask-jobqueue: pip install "openmm-density[batch]"')
    (files / "queue.toml").write_text(text)
    assert run("batch", *MODELS, "--queue", "slurm", "--queue-options", "queue.toml", "--dry-run") == 2
    assert said in capsys.readouterr().err


def test_a_queue_is_refused_where_jobs_cannot_be_submitted(files, monkeypatch, capsys):
    pytest.importorskip("dask_jobqueue", reason='no dask-jobqueue: pip install "openmm-density[batch]"')
    (files / "queue.toml").write_text(SLURM)
    monkeypatch.setenv("PATH", str(files))
    assert run("batch", *MODELS, "--queue", "slurm", "--queue-options", "queue.toml") == 2
    said = 'error: --queue needs sbatch, which is not on this machine, found "slurm": use a machine from which jobs are'
    assert said in capsys.readouterr().err


def test_a_batch_that_is_over_says_what_came_of_it(fitted, files, capsys):
    """The fit that other tests look at, as if a batch had made it."""
    from openmm_density.extensions.batch.job_folder import JobFolder

    arguments = ["batch", "model.pdb", *map(str, MODELS[2:])]
    (job,) = jobs_asked(build_parser().parse_args(arguments))
    os.mkdir("many")
    os.symlink(fitted, "many/model")
    JobFolder(job).note_job()
    try:
        assert run(*arguments) == 0
    finally:
        (fitted / "job.json").unlink()
    said = capsys.readouterr()
    assert (
        said.err == "openmm-density batch: model: finished before, not fitted again\n"
        and "1 of 1 fit finished; results are in many: open batch.html in a browser" in said.out
    )
    assert [
        line for line in said.out.splitlines() if line.startswith("Verdict: The best is model, with a CC of")
    ]
    assert json.loads((files / "many" / "batch.json").read_text())["jobs"][0]["state"] == "finished"


def test_cores_and_gpus_are_shared_out(monkeypatch):
    monkeypatch.setattr(devices, "core_count", lambda: 16)
    share = devices.machine_shares(100)
    assert (share.places, share.threads) == ([{}] * 16, 1)
    assert devices.machine_shares(3).threads == 5
    assert len(devices.machine_shares(100, threads=3).places) == 6
    assert (len(devices.machine_shares(100, 4).places), devices.machine_shares(100, 4).threads) == (4, 4)
    share = devices.machine_shares(100, gpus=["0", "3"])
    assert fits_on_gpus(share) == {"0": 8, "3": 8} and share.threads == 1
    assert fits_on_gpus(devices.machine_shares(3, gpus=["0", "1"])) == {"0": 2, "1": 1}
    assert fits_on_gpus(devices.machine_shares(100, 5, ["0", "1"])) == {"0": 3, "1": 2}


@pytest.mark.parametrize(
    ("named", "visible", "taken", "platform"),
    [
        ([[], []], ["0"], "CUDA", "CUDA"),
        ([[], []], ["0"], "CPU", "CPU"),
        ([[], ["CPU"]], ["0"], "CUDA", "CUDA"),
        ([["CUDA"], []], ["0"], None, "CUDA"),
        ([["CPU"], ["Reference"]], ["0"], None, "CPU"),
        ([[], []], [], None, "CPU"),
    ],
)
def test_fits_that_name_no_platform_share_the_gpus_where_cuda_runs(
    named, visible, taken, platform, monkeypatch
):
    def asked(say):
        assert taken is not None, "nothing is to be found out"
        return taken

    monkeypatch.setattr(batch, "visible_gpus", lambda: visible)
    monkeypatch.setattr(batch, "platform_beside", asked)
    words = [tuple(word for name in names for word in ("--platform", name)) for names in named]
    jobs = [Job("a", "out/a", "a.pdb", "map.mrc", 5.0, arguments=each) for each in words]
    gpus = batch.gpus_for(jobs, print)
    assert gpus == (visible if platform == "CUDA" else [])
    settings = batch.settings_of(devices.machine_shares(2, gpus=gpus, threads=1), gpus)
    assert settings.arguments == ("--threads", "1", "--platform", platform)


def fits_on_gpus(share):
    return Counter(place["CUDA_VISIBLE_DEVICES"] for place in share.places)


@pytest.fixture
def with_crystal(files):
    """Return the folder with ``data.mtz``, the measured amplitudes of some crystal, as well."""
    structure = gemmi.Structure()
    structure.cell, structure.spacegroup_hm = gemmi.UnitCell(20, 21, 22, 90, 90, 90), "P 21 21 21"
    hkl = np.array([[h, k, 1] for h in range(1, 6) for k in range(1, 5)], dtype=np.int32)
    columns = usual_columns(np.linspace(1.0, 9.0, len(hkl)), np.arange(len(hkl)) % 10 == 0)
    write_mtz(files / "data.mtz", structure, hkl, columns)
    return files


CRYSTALS = ("model.pdb", "--map", "data.mtz", "--output", "many")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*MODELS, "--cycles", 2), "--cycles is for the measured amplitudes of an MTZ file, and target.mrc is taken"),
        ((*MODELS, "--make-free-flags"), "--make-free-flags is for the measured amplitudes of an MTZ file"),
        ((*MODELS[:4], *MODELS[6:]), "--resolution is required: give MODEL …"),
        ((*CRYSTALS, "--cycles", 0), "--cycles must be a whole number from 1 to 99, found 0: "),
        ((*CRYSTALS, "--strength", -1), "--strength must be"),
        ((*CRYSTALS, "--place", "on"), "--place does not go with measured amplitudes, whose maps follow from the model: leave"),
        ((*CRYSTALS, "--free-map", "target.mrc"), "--free-map is for maps, and data.mtz is fitted as measured amplitudes"),
        ((*CRYSTALS, "--make-free-flags", "--seeds", 2), "--make-free-flags draws the free flags with the seed, so that"),
        (
            "model,map,resolution,cycles\nmodel.pdb,data.mtz,,2\nmodel.pdb,target.mrc,5,2\n",
            "row 2, 002_model: cycles is for the measured amplitudes of an MTZ file, and target.mrc is taken",
        ),
        (
            "model,map,resolution,free-flags\nmodel.pdb,target.mrc,5,FREE\n",
            "row 1, 001_model: free_flags is for the measured amplitudes of an MTZ file, and target.mrc is a map",
        ),
        (
            "model,map,resolution,invert\nmodel.pdb,target.mrc,5,yes\nmodel.pdb,data.mtz,,yes\n",
            "row 2, 002_model: invert does not go with measured amplitudes, whose maps follow from the model: leave invert out",
        ),
        ("model,map\nmodel.pdb,target.mrc\n", "jobs.csv, row 1: there is no resolution: add a column resolution"),
    ],
)  # fmt: skip
def test_what_amplitudes_or_maps_cannot_have_is_refused_before_any_fit(with_crystal, arguments, said, capsys):
    if isinstance(arguments, str):
        (with_crystal / "jobs.csv").write_text(arguments)
        arguments = ("--table", "jobs.csv", "--output", "many")
    assert run("batch", *arguments) == 2
    found = capsys.readouterr().err
    assert found.startswith("openmm-density batch: error: ") and said in found, found
    assert found.count("\n") == 1 and not (with_crystal / "many").exists()


def test_a_series_of_amplitudes_is_refused(with_crystal, capsys):
    maps = ("target.mrc", "data.mtz")
    assert run("series", "model.pdb", *maps, "--resolution", 5, "--output", "path") == 2
    said = "data.mtz: it holds measured amplitudes, and the volumes of a series are maps: use openmm-density fit for a crystal"
    assert said in capsys.readouterr().err and not (with_crystal / "path").exists()

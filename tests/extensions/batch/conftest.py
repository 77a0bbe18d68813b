"""Jobs of a fragment that is quick to fit, and programs in place of fits for what is not about them."""

import json
import textwrap
from contextlib import nullcontext
from pathlib import Path

import pytest

from openmm_density.cli import main
from openmm_density.extensions.batch import Batch, jobs_of
from openmm_density.extensions.batch.engines import ThisMachine
from openmm_density.extensions.batch.job_folder import JobFolder
from openmm_density.extensions.batch.run_job import RunSettings

from ...fragments import write_fragment

RESIDUES = 12
OPTIONS = {
    "steps": 60,
    "report_interval": 20,
    "save_interval": 20,
    "platform": "CPU",
    "threads": 1,
    "place": "off",
    "search": "off",
}


@pytest.fixture(scope="session")
def fragment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batch")
    write_fragment(folder / "target.pdb", residues=RESIDUES)
    write_fragment(folder / "a.pdb", (0.8, -0.5, 0.4), residues=RESIDUES)
    write_fragment(folder / "b.pdb", (-0.6, 0.5, 0.5), residues=RESIDUES)
    arguments = ["--resolution", "5", "--voxel-size", "1.5", "--output", str(folder / "map.mrc")]
    assert main(["simulate", str(folder / "target.pdb"), *arguments]) == 0
    return folder


@pytest.fixture(scope="session")
def fits(fragment):
    """Return a batch of two fits that nothing disturbed; they were run here, which takes a third of the time."""
    models = [fragment / "a.pdb", fragment / "b.pdb"]
    batch = Batch(
        jobs_of(models, [fragment / "map.mrc"], 5.0, fragment / "fits", **OPTIONS), fragment / "fits"
    )
    for job in batch.jobs:
        folder = JobFolder(job)
        folder.note_job()
        assert main(["fit", *folder.arguments()]) == 0
    assert all(result.is_finished for result in batch.run_on(nullcontext(ThisMachine()), RunSettings()))
    return batch


@pytest.fixture
def jobs(fragment, tmp_path):
    """Return four jobs."""
    models = [fragment / "a.pdb", fragment / "b.pdb"]
    return jobs_of(models, [fragment / "map.mrc"], 5.0, tmp_path / "out", seeds=range(2), **OPTIONS)


@pytest.fixture
def program(monkeypatch, tmp_path):
    """Return what makes settings with a program in place of ``fit``.

    It is Python code that finds its arguments in ``arguments``, its folder in ``folder``, and can ``tell`` and ``finish``.
    """

    def put(code: str) -> RunSettings:
        module = tmp_path / "program" / "program_in_place_of_fit.py"
        module.parent.mkdir(exist_ok=True)
        module.write_text(BEGIN + textwrap.indent(textwrap.dedent(code), "    "), encoding="utf-8")
        monkeypatch.syspath_prepend(str(module.parent))
        return RunSettings(program=module.stem)

    return put


BEGIN = f"""
import json, os, sys, time
from pathlib import Path
sys.path[:0] = {json.dumps([str(Path(__file__).parents[3])])}

def main():
    from openmm_density.base.program_process import end_with
    end_with(int(sys.argv[1]))
    reports, arguments = os.fdopen(int(sys.argv[2]), "w"), sys.argv[3:]
    folder = Path(arguments[arguments.index("--resume" if "--resume" in arguments else "--output") + 1])

    def tell(**told):
        print(json.dumps(told), file=reports, flush=True)

    def finish(**figures):
        (folder / "summary.json").write_text(json.dumps({{"interrupted": False, **figures}}))

"""

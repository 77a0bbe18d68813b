"""From a command to its answer: the first step of a fit of adenylate kinase, help, an error, and an empty Python beside them.

The commands take turns, so that what else runs on the machine meets all alike. Seconds are counted from the start of a process
to its end, by the clock and of processor time, which others change less. The fit is ended at its first step of dynamics.

    python examples/benchmarks/start_up.py --repeats 3 --json start_up.json
    python examples/benchmarks/start_up.py --beside OTHER/.venv/bin/python
    python examples/benchmarks/start_up.py --first-use --processors 2

With ``--first-use`` no kernel is compiled yet each time, and the first force of a script is timed beside the first step of a fit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from interleaved import processor
from rich.console import Console
from rich.table import Table

from openmm_density.base.atomic_files import write_text

MODELS = Path(__file__).resolve().parents[1] / "data"
OPEN, CLOSED = MODELS / "adk_open.pdb", MODELS / "adk_closed.pdb"
EMPTY, HELP, ERROR, FIRST_STEP = "python -c pass", "fit --help", "an error of an argument", "first step"
FIRST_FORCE = "first force"

# The command line, ended at its first step, with what took the time until then as its only output.
_COMMAND = """
import json, os, sys
from openmm_density.cli import main, startup

startup.note_start(is_process=True)
with startup.loading():
    import openmm_density.cli.fit as command
    from openmm_density.fitting.dynamics import Dynamics

class Watched(command.Stopwatch):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        Watched.latest = self

def end(*arguments, **options):
    print(json.dumps(Watched.latest.seconds_by_part), flush=True)
    os._exit(0)

command.Stopwatch, Dynamics.step = Watched, end
sys.exit(main())
"""
# A script's, from its imports to the density force on adenylate kinase.
_SCRIPT = """
import sys
from openmm import Context, Platform, System, VerletIntegrator, app
from openmm_density import DensityFit, DensityMap

pdb = app.PDBFile(sys.argv[1])
system = System()
for _ in pdb.topology.atoms():
    system.addParticle(12.0)
fit = DensityFit(DensityMap.from_file(sys.argv[2]), pdb.topology, resolution=5.0, positions=pdb.positions)
system.addForce(fit.create_force())
context = Context(system, VerletIntegrator(0.001), Platform.getPlatformByName("CPU"))
context.setPositions(pdb.positions)
context.getState(forces=True)
"""
_MAIN = "from openmm_density.cli import program; program()"


@dataclass
class Timed:
    """A command, and what it took each time.

    Attributes
    ----------
    name : str
    command : list of str
    status : int
        That it must end with.
    first_use : bool
        Whether no kernel is compiled yet when it starts.
    seconds, processor_seconds : list of float
        By the clock, and of the processor's time.
    parts : list of dict
        Seconds by part, where it tells them.
    """

    name: str
    command: list[str]
    status: int = 0
    first_use: bool = False
    seconds: list[float] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)
    parts: list[dict[str, float]] = field(default_factory=list)

    def run(self) -> None:
        """Run it once more."""
        with tempfile.TemporaryDirectory() as cache:
            begun = time.monotonic()
            process = subprocess.Popen(
                self.command,
                cwd=tempfile.gettempdir(),  # where no folder is taken for the package
                env=os.environ | ({"OPENMM_DENSITY_CACHE": cache} if self.first_use else {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            told = process.stdout.read() if process.stdout else b""
            _, state, usage = os.wait4(process.pid, 0)
        self.seconds.append(time.monotonic() - begun)
        status = process.returncode = os.waitstatus_to_exitcode(state)
        if status != self.status:
            raise SystemExit(f"{' '.join(self.command)} ended with status {status}, not {self.status}")
        self.processor_seconds.append(usage.ru_utime + usage.ru_stime)
        if told.startswith(b"{"):
            self.parts.append(json.loads(told))


def commands(python: str, folder: Path, label: str = "", fits: bool = True) -> list[Timed]:
    """Return the commands that an interpreter is timed with; their files are in a folder."""
    fit = fit_of(folder)
    main = [python, "-c", _MAIN]
    found = [
        Timed(f"{EMPTY}{label}", [python, "-c", "pass"]),
        Timed(f"{HELP}{label}", [*main, "fit", "--help"]),
        Timed(f"{ERROR}{label}", [*main, "fit", *fit, "--steps", "0"], status=2),
    ]
    return [*found, Timed(f"{FIRST_STEP}{label}", [python, "-c", _COMMAND, "fit", *fit])] if fits else found


def fit_of(folder: Path) -> list[str]:
    """Return the arguments of the fit; its files are in a folder."""
    fit = [str(OPEN), str(folder / "closed.mrc"), "--resolution", "5", "--reference", str(CLOSED)]
    return [*fit, "--platform", "CPU", "--output", str(folder / "run"), "--overwrite"]


def first_uses(python: str, folder: Path, label: str = "") -> list[Timed]:
    """Return what is timed where no kernel is compiled yet, and the script's beside it where they are."""
    script = [python, "-c", _SCRIPT, str(OPEN), str(folder / "closed.mrc")]
    fit = [python, "-c", _COMMAND, "fit", *fit_of(folder)]
    return [
        Timed(f"{FIRST_FORCE}, compiled before{label}", script),
        Timed(f"{FIRST_FORCE}, nothing compiled{label}", script, first_use=True),
        Timed(f"{FIRST_STEP} of a fit, nothing compiled{label}", fit, first_use=True),
    ]


def show(console: Console, timed: list[Timed]) -> None:
    """Print a table of the commands, and of what takes the time of a fit's start."""
    table = Table(title="seconds", title_justify="left")
    for heading in ("", "fastest", "median", "processor, fastest", "median"):
        table.add_column(heading, justify="left" if not heading else "right")
    for each in timed:
        spent = (each.seconds, each.processor_seconds)
        table.add_row(
            each.name, *(f"{of(values):.2f}" for values in spent for of in (min, statistics.median))
        )
    console.print(table)
    for each in timed:
        if each.parts:
            fastest = each.parts[each.seconds.index(min(each.seconds))]
            told = ", ".join(f"{part.replace('_', ' ')} {seconds:.1f}" for part, seconds in fastest.items())
            console.print(f"{each.name}, the fastest: {told}")


def main() -> None:
    """Time the commands and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3, help="of each command (%(default)s)")
    parser.add_argument("--beside", metavar="PYTHON", help="the interpreter of another installation")
    parser.add_argument("--without-fit", action="store_true", help="help and error alone")
    parser.add_argument("--first-use", action="store_true", help="what a first use takes, and nothing else")
    parser.add_argument("--processors", type=int, metavar="N", help="so many alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all times there")
    options = parser.parse_args()
    if options.processors:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.processors])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        interpreters = {"": sys.executable} | ({" (beside)": options.beside} if options.beside else {})
        timed = []
        for label, python in interpreters.items():
            if options.first_use:
                timed += first_uses(python, folder, label)
            else:
                timed += commands(python, folder, label, not options.without_fit)
        # An error of an argument comes before any file is read.
        (folder / "closed.mrc").touch()
        if not options.without_fit:
            simulate = [
                str(CLOSED),
                "--resolution",
                "5",
                "--voxel-size",
                "1",
                "--noise",
                "0.1",
                "--seed",
                "1",
            ]
            simulate += ["--output", str(folder / "closed.mrc"), "--overwrite"]
            command = [sys.executable, "-c", _MAIN, "simulate", *simulate]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for _ in range(options.repeats):
            for each in timed:
                each.run()
    console = Console()
    console.print(processor())
    show(console, timed)
    if options.json:
        write_text(options.json, json.dumps([asdict(each) for each in timed], indent=1))


if __name__ == "__main__":
    main()

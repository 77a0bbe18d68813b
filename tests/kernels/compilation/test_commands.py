"""Commands that a compiler runs: several at once, and none that outlives the program."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from .compilers import compiler_script

# As a compiler is, a process that waits for another one; both write down who they are.
HANGING = "echo $$ > {0}.shell; sh -c 'echo $$ > {0}.inner; sleep 120'; true"

ENDING = """
import sys, threading, time
from pathlib import Path
from openmm_density.kernels import compilation
from openmm_density.kernels.compilation.commands import run_commands

folder = Path(sys.argv[1])
compilation.load_ahead(["neighbors"])
commands = [["sh", "-c", text] for text in sys.argv[2:]]
threading.Thread(target=run_commands, args=(commands, folder, 100.0), daemon=True).start()
while len(list(folder.glob("*.inner"))) < 3:
    time.sleep(0.01)
sys.exit("there is no such map")
"""


def hanging(folder: Path, name: str) -> str:
    return HANGING.format(folder / name)


def ended(path: Path) -> bool:
    """Whether the process whose number a file holds has ended, or only waits to be heard of."""
    try:
        return Path(f"/proc/{path.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:  # gone, perhaps while it was read
        return True


def assert_ended(folder: Path, count: int) -> None:
    numbers = [*folder.glob("*.shell"), *folder.glob("*.inner")]
    assert len(numbers) == count
    deadline = time.monotonic() + 20
    while not all(ended(each) for each in numbers):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_program_that_ends_with_an_error_waits_for_no_compiler(tmp_path):
    compiler = compiler_script(tmp_path / "compiler", hanging(tmp_path, "kernel"))
    environment = os.environ | {"CXX": str(compiler), "OPENMM_DENSITY_CACHE": str(tmp_path / "cache")}
    commands = [hanging(tmp_path, name) for name in ("one", "other")]
    run = subprocess.run(
        # Of as many processors as there are, more commands could not run at once.
        [sys.executable, "-c", _with_processors(3), str(tmp_path), *commands],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (run.returncode, run.stdout, run.stderr) == (1, "", "there is no such map\n")
    assert_ended(tmp_path, 6)


def _with_processors(count: int) -> str:
    return f"import os\nos.sched_getaffinity = lambda _: range({count})\n{ENDING}"

"""Other processors, threads and random numbers for the tests that simulate; `python -m tests.variations` prints those of today.

What tests assert holds with any of them; `.ci/run` runs some once more with the environment that is printed here.
"""

from __future__ import annotations

import datetime
import platform
from pathlib import Path

SIMULATING = (
    "fitting/",
    "report/",
    "extensions/",
    "models/merging/",
    "restraints/",
    "energies/atomic_parameters/",
    "kernels/test_local_dynamics",
    "energies/test_density_fit",
    "energies/native_force/test_native",
    "models/test_preparation",
    "cli/test_fit",
    "test_reporters",
    "test_examples",
)
"""How the paths begin, within `tests`, of what minimises, simulates or searches: `pytest -m simulates`."""


def instruction_sets(machine: str, flags: str) -> list[str]:
    """Return for which processors kernels can be compiled that run on one of such flags, as /proc/cpuinfo has them."""
    others = {"x86-64-v2": "sse4_2", "x86-64-v3": "avx2"}
    known = set(flags.split())
    return [*(name for name, needed in others.items() if machine == "x86_64" and needed in known), "native"]


def variation(day: int, instructions: list[str]) -> dict[str, str]:
    """Return the environment of a day of the year: instructions and one to three threads in turn, and a seed of its own."""
    threads = str(1 + day // len(instructions) % 3)
    return {
        "OPENMM_DENSITY_CXXFLAGS": f"-march={instructions[day % len(instructions)]}",
        "OMP_NUM_THREADS": threads,
        "OPENMM_CPU_THREADS": threads,
        "OPENMM_DENSITY_TEST_SEED": str(day),
    }


def main() -> None:
    """Print the variation of today, as `env` takes it."""
    cpuinfo = Path("/proc/cpuinfo")
    known = instruction_sets(platform.machine(), cpuinfo.read_text() if cpuinfo.exists() else "")
    found = variation(datetime.date.today().timetuple().tm_yday, known)
    print(*(f"{name}={value}" for name, value in found.items()))


if __name__ == "__main__":
    main()

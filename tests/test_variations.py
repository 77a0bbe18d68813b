"""Tests under another processor, number of threads and seed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .conftest import PROJECT
from .variations import SIMULATING, instruction_sets, variation

DRAW = """
import numpy, openmm, torch
from tests import conftest
integrator = openmm.BrownianIntegrator(300, 1, 0.001)
integrator.setRandomNumberSeed(5)
print(conftest.THREADS, integrator.getRandomNumberSeed())
print(numpy.random.default_rng(5).random(), numpy.random.default_rng([5]).random())
print(torch.rand(1, generator=torch.Generator().manual_seed(5)), torch.manual_seed(5).initial_seed())
"""


def test_all_pairs_of_instructions_and_threads_come_in_turn_each_day_with_a_seed_of_its_own() -> None:
    known = ["x86-64-v2", "x86-64-v3", "native"]
    found = [variation(day, known) for day in range(1, 367)]
    assert len({each["OPENMM_DENSITY_TEST_SEED"] for each in found}) == 366
    pairs = [(each["OPENMM_DENSITY_CXXFLAGS"], each["OMP_NUM_THREADS"]) for each in found]
    assert all(len(set(pairs[day : day + 9])) == 9 for day in range(357))
    assert {threads for _, threads in pairs} == {"1", "2", "3"}


@pytest.mark.parametrize(
    ("machine", "flags", "known"),
    [
        ("x86_64", "sse4_2 avx2", ["x86-64-v2", "x86-64-v3", "native"]),
        ("x86_64", "sse4_2 avx", ["x86-64-v2", "native"]),
        ("aarch64", "", ["native"]),
    ],
)
def test_kernels_are_compiled_for_what_runs_here(machine: str, flags: str, known: list[str]) -> None:
    assert instruction_sets(machine, flags) == known


def test_files_that_simulate_are_there() -> None:
    assert all(list((PROJECT / "tests").glob(f"{each}*")) for each in SIMULATING)


def test_the_environment_sets_threads_and_shifts_all_seeds(forked: None) -> None:
    def drawn(**variables: str) -> list[str]:
        run = subprocess.run(
            [sys.executable, "-c", DRAW],
            cwd=PROJECT,
            env=os.environ | variables,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout.split()

    names = ("OMP_NUM_THREADS", "OPENMM_DENSITY_TEST_SEED")
    usual, shifted = (drawn(**dict(zip(names, each))) for each in (("2", "0"), ("3", "7")))
    assert usual[:2] == ["2", "5"] and shifted[:2] == ["3", "12"] and usual[-1] == "5" and shifted[-1] == "12"
    assert not set(usual) & set(shifted)

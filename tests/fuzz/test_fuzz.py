"""Damaged and hostile files: a valid object, or one line that names the file, and never a crash, much time or much memory."""

import json
import os
import subprocess
import sys

import pytest

from ..conftest import PROJECT
from .readers import READERS

MUTATIONS = 250


@pytest.fixture(scope="module")
def found(forked):
    """Read the mutations in a process of one thread, whose children inherit what it has imported."""
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENMM_CPU_THREADS")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--mutations", str(MUTATIONS), "--json"],
        cwd=PROJECT,
        env=os.environ | threads,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", READERS)
def test_mutated_files_are_read_or_refused(found, name):
    outcome = found[name]
    assert outcome["failures"] == []
    assert outcome["read"] + outcome["refused"] == MUTATIONS
    # Mutations that all did the same would show nothing.
    assert outcome["read"] >= 10 and outcome["refused"] >= 10


@pytest.mark.parametrize("name", READERS)
def test_whole_files_are_read_and_mutations_follow_from_their_seeds(name, tmp_path):
    reader = READERS[name]
    for sample in reader.samples:
        path = tmp_path / f"whole{reader.suffix}"
        path.write_bytes(sample)
        reader.read(path)
    assert reader.mutated(7) == reader.mutated(7)
    assert len({reader.mutated(seed) for seed in range(30)}) >= 25

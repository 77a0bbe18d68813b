"""Damaged and hostile files: a valid object, or one line that names the file, and never a crash, much time or much memory."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from openmm_density.base.errors import InputError

from ..conftest import PROJECT
from .__main__ import fuzzed
from .readers import READERS, Reader

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


def read_badly(path):
    """Do what no reader may."""
    what = path.read_bytes().decode()
    if what == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "memory":
        np.ones(1 << 30)
    if what == "exception":
        raise ZeroDivisionError("by nothing")
    if what == "nameless":
        raise InputError("it cannot be read")
    if what == "invalid":
        assert what == "valid"
    if what == "refused":
        raise InputError(f"{path}: it is damaged")


def test_what_a_reader_does_wrong_is_found(monkeypatch):
    whats = ["read", "crash", "refused", "memory", "exception", "crash", "nameless", "invalid", "read"]
    reader = Reader("bad", ".txt", read_badly, lambda _: [b"x"], [])
    monkeypatch.setattr(Reader, "mutated", lambda _, seed: whats[seed].encode())
    found = fuzzed(reader, range(len(whats)))
    assert (found["read"], found["refused"]) == (2, 1)
    said = {failure["seed"]: failure["what"] for failure in found["failures"]}
    assert said.keys() == {1, 3, 4, 5, 6, 7}
    assert said[1] == said[5] == "crash: SIGKILL"
    assert "MemoryError" in said[3] and said[4].startswith("ZeroDivisionError at test_fuzz.py")
    assert "one line that names the file" in said[6] and said[7].startswith("AssertionError")


def test_a_reader_that_hangs_is_ended(monkeypatch):
    reader = Reader("slow", ".txt", lambda path: os.read(os.pipe()[0], 1), lambda _: [b"x"], [])
    monkeypatch.setattr("tests.fuzz.__main__.HANGS_AFTER", 0.5)
    (failure,) = fuzzed(reader, range(1))["failures"]
    assert failure["what"].startswith("it hangs")

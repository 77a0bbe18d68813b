"""A fragment of adenylate kinase, a map of it, and a fit that several test files look at."""

import pytest

from ..fragments import write_fragment
from .commands import SMALL, fit, run


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return simulated(tmp_path_factory.mktemp("fragment"), 40)


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """Return the same with a fragment that is quicker to fit."""
    return simulated(tmp_path_factory.mktemp("small"), SMALL)


def simulated(folder, residues):
    """Write a fragment, the same beside its place, and a map."""
    write_fragment(folder / "target.pdb", (0, 0, 0), residues)
    write_fragment(folder / "model.pdb", (1.5, -1.0, 0.8), residues)
    arguments = ("--resolution", 5, "--voxel-size", 1.2, "--noise", 0.1, "--output", folder / "target.mrc")
    assert run("simulate", folder / "target.pdb", *arguments) == 0
    return folder


@pytest.fixture(scope="session")
def fitted(folder, drawing):
    with drawing():
        assert fit(folder, folder / "run") == 0
    return folder / "run"

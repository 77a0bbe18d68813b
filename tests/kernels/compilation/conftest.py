"""A library that was compiled for real, by one of eight processes."""

from __future__ import annotations

import pytest

from openmm_density.kernels import compilation

from ..children import Child
from .compilers import REAL_COMPILER, copying_compiler, loaded_here


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Compile in eight processes that all start on an empty cache; what they get was compiled for real before."""
    if REAL_COMPILER is None:
        pytest.skip("g++ is not installed")
    assert compilation.load("neighbors"), compilation.error_text("neighbors")
    folder = tmp_path_factory.mktemp("compiled")
    cache = folder / "cache"
    compiler = copying_compiler(folder / "compiler", compilation.status()["neighbors"].library, "sleep 0.5")
    processes = [Child(loaded_here, "neighbors", cache=cache, CXX=compiler) for _ in range(8)]
    reports = [process.result() for process in processes]
    return {"cache": cache, "compiler": compiler, "reports": reports, "library": reports[0]["library"]}

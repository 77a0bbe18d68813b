"""How the C++ of every operator stands."""

from __future__ import annotations

import os

from openmm_density.kernels import compilation
from openmm_density.kernels.compilation import sources

from .compilers import REAL_COMPILER


def test_status_names_every_folder_that_has_a_kernel():
    report = compilation.status()
    assert "scatter" in report
    assert set(report) == {path.parent.name for path in sources.KERNELS.glob("*/cpu.cpp")}
    for folder, status in report.items():
        assert status.folder == folder
        assert status.loaded <= status.tried
        if REAL_COMPILER and not os.environ.get("CXX"):
            assert status.compiler == REAL_COMPILER
            assert status.compiler_version.startswith("g++")

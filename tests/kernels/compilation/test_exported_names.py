"""What compiled libraries show to the rest of the process: functions of ours alone, even with a C++ library inside them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import pytest

from openmm_density.energies.native_force import compiled
from openmm_density.kernels import compilation
from openmm_density.kernels.compilation import sources
from openmm_density.kernels.compilation.compiler import compile_library, find_compiler

from .compilers import needs_compiler

needs_nm = pytest.mark.skipif(shutil.which("nm") is None, reason="no nm, which comes with compilers' linkers")


def exported(library):
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", str(library)],
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.split()[0] for line in listed.stdout.splitlines()}


@needs_compiler
@needs_nm
def test_a_c_plus_plus_library_linked_into_a_kernel_stays_its_own(tmp_path, monkeypatch):
    # As g++ does by itself where the system lacks libstdc++.so for it. OpenMM and Triton would call the copy for their own.
    monkeypatch.setenv("OPENMM_DENSITY_CXXFLAGS", "-O0 -static-libstdc++")
    library = tmp_path / "planarity.so"
    compile_library(library, sources.kernel_source("planarity"), find_compiler())
    assert exported(library) == {"openmm_density_planarity"}
    assert hasattr(ctypes.CDLL(str(library)), "openmm_density_planarity")


@needs_compiler
@needs_nm
@pytest.mark.parametrize("folder", sources.kernel_folders())
def test_kernels_export_their_functions_alone(folder):
    names = exported(compilation.library(sources.kernel_source(folder), lambda path: None))
    assert names
    assert all(name.startswith("openmm_density_") for name in names)


@needs_compiler
@needs_nm
def test_operators_and_the_force_export_nothing_of_the_c_plus_plus_library():
    for source in (sources.operator_source("planarity"), compiled.force_source()):
        names = exported(compilation.library(source, lambda path: None))
        assert all(name.startswith("openmm_density_") for name in names), source.name

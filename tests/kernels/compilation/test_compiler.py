"""What the compiler is asked for, and what it says."""

from __future__ import annotations

import pytest

from ..children import Child
from .compilers import (
    REAL_COMPILER,
    copying_compiler,
    leftovers,
    listed_and_loaded,
    load,
    needs_compiler,
)


@pytest.mark.parametrize("variable", ["CXX", "OPENMM_DENSITY_CXXFLAGS"])
def test_an_unbalanced_quote_is_said_of_its_variable(tmp_path, variable):
    named = {"CXX": REAL_COMPILER} | {variable: "g++ '-O2"}
    offsets, report, messages = Child(listed_and_loaded, cache=tmp_path / "cache", **named).result()
    assert offsets == [0, 1, 2, 2]
    assert report["loaded"] == [False, False, False]
    assert len(messages) == 1
    assert report["error_text"].startswith(
        f"{variable}=g++ '-O2 cannot be split into words (no closing quotation)"
    )


@needs_compiler
def test_the_compilers_own_words_are_kept(tmp_path):
    report = load(
        "neighbors", cache=tmp_path, CXX=REAL_COMPILER, OPENMM_DENSITY_CXXFLAGS="-march=no-such-processor"
    )
    assert report["loaded"] == [False]
    assert report["error"] == f"{REAL_COMPILER} does not compile the neighbors kernel"
    assert f"$ {REAL_COMPILER} -O3" in report["error_text"]
    assert "no-such-processor" in report["error_text"].split("cpu.cpp", 1)[1]
    assert len(report["warnings"]) == 1
    assert leftovers(tmp_path) == []
    assert list(tmp_path.glob("*.so")) == []


def test_a_compiler_without_openmp_or_native_code_is_asked_for_less(compiled, tmp_path):
    refuse = 'case "$*" in *{0}*) echo "unrecognized option {0}"; exit 1;; esac'
    compiler = copying_compiler(tmp_path / "one", compiled["library"], refuse.format("-fopenmp"))
    report = load("neighbors", cache=tmp_path / "cache", CXX=compiler)
    assert report["loaded"] == [True]
    assert report["flags"] == ("-march=native",)
    assert report["warnings"] == []

    compiler = copying_compiler(tmp_path / "two", compiled["library"], refuse.format("-march"))
    report = load("neighbors", cache=tmp_path / "cache", CXX=compiler)
    assert report["loaded"] == [True]
    assert report["flags"] == ("-fopenmp",)
    (message,) = report["warnings"]
    assert "-march=native" in message
    assert "slower" in message

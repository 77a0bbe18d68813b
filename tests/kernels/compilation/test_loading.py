"""Operators' libraries are compiled once, by one of all processes and threads that want them, and loaded."""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import time
from pathlib import Path

import pytest
import torch

from openmm_density.kernels import compilation
from openmm_density.kernels.neighbors import listed_pairs, neighbors

from ..children import Child
from .compilers import (
    calls,
    copying_compiler,
    leftovers,
    listed_and_loaded,
    load,
    loaded_here,
    needs_compiler,
)


def test_eight_processes_on_an_empty_cache_compile_once(compiled):
    assert [report["loaded"] for report in compiled["reports"]] == [[True]] * 8
    assert [report["warnings"] for report in compiled["reports"]] == [[]] * 8
    assert len(calls(compiled["compiler"])) == 1
    assert {report["library"] for report in compiled["reports"]} == {compiled["library"]}
    assert leftovers(compiled["cache"]) == []


def test_a_later_process_compiles_nothing(compiled):
    report = load("neighbors", cache=compiled["cache"], CXX=compiled["compiler"])
    assert report["loaded"] == [True]
    assert report["error"] is None
    assert report["error_text"] == ""
    assert len(calls(compiled["compiler"])) == 1


def test_a_machine_without_a_compiler_uses_what_was_compiled_before(compiled, tmp_path):
    report = load("neighbors", cache=compiled["cache"], PATH=tmp_path)
    assert report["loaded"] == [True]
    assert report["warnings"] == []


def test_a_killed_builder_and_its_orphaned_compiler_block_nobody(compiled, tmp_path):
    cache = tmp_path / "cache"
    # The first compilation writes part of its output and hangs; it outlives its killed parent.
    slow = f"""
if [ ! -e {tmp_path}/started ]; then
    echo $$ > {tmp_path}/pid
    while [ $# -gt 0 ]; do
        if [ "$1" = -o ]; then head -c 5000 "$LIBRARY" > "$2"; fi
        shift
    done
    mv {tmp_path}/pid {tmp_path}/started
    exec sleep 120
fi
"""
    compiler = copying_compiler(tmp_path / "compiler", compiled["library"], slow)
    builder = Child(loaded_here, "neighbors", cache=cache, CXX=compiler)
    deadline = time.monotonic() + 60
    while not (tmp_path / "started").exists():
        assert builder.process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    orphan = int((tmp_path / "started").read_text())
    waiting = Child(loaded_here, "neighbors", cache=cache, CXX=compiler)
    assert len(leftovers(cache)) == 1
    foreign = cache / "density-0123-4567.compiling-abcd"
    foreign.mkdir()
    (foreign / "density.so").write_bytes(b"part of a library")

    builder.process.kill()
    builder.process.join()
    try:
        report = waiting.result()
        os.kill(orphan, 0)
    finally:
        os.kill(orphan, signal.SIGKILL)
    assert report["loaded"] == [True]
    assert report["warnings"] == []
    assert len(calls(compiler)) == 2
    assert leftovers(cache) == []


def test_without_a_compiler_pytorch_serves_after_one_warning(tmp_path):
    offsets, report, messages = Child(
        listed_and_loaded, cache=tmp_path / "cache", CXX="/nonexistent"
    ).result()
    assert offsets == [0, 1, 2, 2]
    assert report["loaded"] == [False, False, False]
    assert report["warnings"] == []
    assert report["error_text"].startswith("CXX names /nonexistent")
    (message,) = messages
    for part in ("/nonexistent", "PyTorch", "slower", "apt-get install g++", "error_text('neighbors')"):
        assert part in message
    assert not (tmp_path / "cache").exists()


def kernel_alone(folder):
    try:
        kernel = compilation.entry_points(folder)
    except compilation.BuildError as error:
        return str(error), compilation.kernels_serve([folder]), None
    alone = not compilation.status()[folder].tried
    return kernel.openmm_density_whole_molecules is not None, compilation.kernels_serve([folder]), alone


@needs_compiler
def test_a_kernel_comes_without_its_operators_and_torchs_headers(tmp_path):
    cache = tmp_path / "cache"
    assert Child(kernel_alone, "molecules", cache=cache).result() == (True, True, True)
    (record,) = cache.glob("*.json")
    assert record.name.startswith("molecules-kernel-") and "/torch/include" not in record.read_text()


def test_an_unwritable_cache_gives_way_to_a_temporary_folder_of_this_user(compiled, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    compiler = copying_compiler(tmp_path / "compiler", compiled["library"])
    settings = {"cache": tmp_path / "file" / "cache", "CXX": compiler, "TMPDIR": temporary}
    for _ in range(2):
        report = load("neighbors", **settings)
        assert report["loaded"] == [True]
        assert report["cache"] == temporary / f"openmm-density-{os.getuid()}"
        (message,) = report["warnings"]
        assert "OPENMM_DENSITY_CACHE" in message
        assert str(tmp_path / "file" / "cache") in message
    assert len(calls(compiler)) == 1


def openmp_runtimes():
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in maps if "libgomp" in line or "omp.so" in line or "omp5.so" in line}


def digests_and_new_runtimes():
    """Digest what the operators return at several thread counts; name OpenMP libraries that they brought."""
    before = openmp_runtimes()
    generator = torch.Generator().manual_seed(0)
    positions = 4 * torch.rand(3000, 3, generator=generator)
    box = torch.tensor([[4.0, 0, 0], [0.3, 3.9, 0], [-0.4, 0.2, 3.8]])
    assert compilation.load("neighbors"), compilation.error_text("neighbors")
    digests = []
    for n_threads in (1, 2, 3, 8):
        torch.set_num_threads(n_threads)
        first, second, steps = listed_pairs(*neighbors(positions, box, 0.5, True)[:3])
        pairs = torch.unique(torch.cat([first[:, None], second[:, None], steps], dim=1), dim=0)
        digests.append(hashlib.sha256(pairs.numpy().tobytes()).hexdigest())
    return digests, openmp_runtimes() - before, compilation.status()["neighbors"].flags


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names instruction sets of x86-64")
def test_another_instruction_set_and_kind_of_thread_give_the_same_bits(compiled, kernels_of_other_flags):
    flags = ("-march=x86-64", "-fno-openmp", "-O0")
    variant = Child(
        digests_and_new_runtimes, cache=kernels_of_other_flags, OPENMM_DENSITY_CXXFLAGS=" ".join(flags)
    )
    native, new_runtimes, _ = Child(
        digests_and_new_runtimes, cache=compiled["cache"], CXX=compiled["compiler"]
    ).result()
    assert len(native) == 4
    assert len(set(native)) == 1
    assert new_runtimes == set(), "the kernels run in torch's own OpenMP threads"
    digests, _, used = variant.result()
    assert digests == native
    assert used == ("-fopenmp", *flags)

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import openmm
import pytest
from rich.console import Console

from openmm_density.energies.forces import BACKENDS, ON_ALL_PLATFORMS
from openmm_density.extensions.doctor import Diagnosis, GpuKernel, Kernel, Probe, diagnosis_text, examine
from openmm_density.extensions.doctor.examination import Doing, probe_platform
from openmm_density.extensions.doctor.packages import OPTIONAL_PACKAGES, PACKAGES
from openmm_density.extensions.doctor.probes import gpu_calls
from openmm_density.extensions.doctor.probes import probe as probe_here
from openmm_density.extensions.doctor.remedies import remedies
from openmm_density.kernels import compilation

from ..forked_processes import forking


def healthy() -> Diagnosis:
    return Diagnosis(
        python="3.12.0",
        machine="Linux x86_64",
        versions={package: "100.0" for package in (*PACKAGES, *OPTIONAL_PACKAGES)},
        fastest_platform="CPU",
        probes=[Probe("TorchForce", "CPU", True, None, None, 0.1)],
        unloaded_plugins={},
        compiler="/usr/bin/g++",
        compiler_version="g++ 12",
        cache="/cache",
        kernels=[Kernel("density", True, True, "/cache/density.so", 20.0, ["-fopenmp"], None, "")],
        gpu=None,
        gpu_problem=None,
        remedies=[],
    )


def as_text(diagnosis: Diagnosis) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(diagnosis_text(diagnosis))
    return console.export_text()


def remedies_of(**changes) -> list[str]:
    return list(remedies(replace(healthy(), **changes)))


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def here(said) -> Diagnosis:
    with forking():
        return examine(progress=said.append)


@pytest.fixture(scope="module")
def broken(tmp_path_factory) -> dict:
    """Examine with a damaged openmm-torch plugin, without a compiler and without any compiled kernel."""
    original = Path(openmm.version.openmm_library_path) / "plugins"
    if not (original / "libOpenMMTorchReference.so").is_file():
        pytest.skip("no openmm-torch plugin to break")
    plugins = tmp_path_factory.mktemp("plugins")
    for plugin in original.glob("*.so"):
        if "Reference" in plugin.name:
            (plugins / plugin.name).symlink_to(plugin)
    damaged = plugins / "libOpenMMTorchReference.so"
    damaged.unlink(missing_ok=True)
    damaged.write_bytes(b"not a library")
    changes = {
        "OPENMM_PLUGIN_DIR": str(plugins),
        "OPENMM_DENSITY_CACHE": str(tmp_path_factory.mktemp("cache")),
        "CXX": "/nonexistent",
    }
    script = (
        "import json; from openmm_density.extensions import doctor; d = doctor.examine(); "
        "from rich.console import Console; Console(stderr=True, width=100_000).print(doctor.diagnosis_text(d)); "
        "print(json.dumps(d.as_dict()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | changes, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return {"report": done.stderr, **json.loads(done.stdout.splitlines()[-1])}


def test_torch_force_runs_on_reference_and_cpu_here(here):
    works = {(probe.backend, probe.platform): probe.works for probe in here.probes}
    assert works["TorchForce", "Reference"] and works["TorchForce", "CPU"]
    assert here.ok


@pytest.mark.opencl
def test_every_platform_is_probed_for_what_can_be_made(here):
    platforms = {openmm.Platform.getPlatform(i).getName() for i in range(openmm.Platform.getNumPlatforms())}
    assert {probe.platform for probe in here.probes if probe.backend == "TorchForce"} == platforms
    assert {probe.backend for probe in here.probes} == set(
        BACKENDS if "CUDA" in platforms else ON_ALL_PLATFORMS
    )
    assert all((probe.problem is None) == probe.works for probe in here.probes)


def test_versions_and_kernels_are_those_of_the_environment(here):
    assert here.versions["openmm"].startswith(openmm.Platform.getOpenMMVersion())
    assert {kernel.folder for kernel in here.kernels} == set(compilation.operator_folders())
    assert all(kernel.tried for kernel in here.kernels)
    assert all(bool(kernel.output) == (not kernel.loaded) for kernel in here.kernels)


def test_report_names_what_was_found(here):
    text = as_text(here)
    for word in ("TorchForce", "Reference", here.versions["torch"], *compilation.operator_folders()):
        assert word in text
    assert "Fitting works here." in text
    for remedy in here.remedies:
        assert remedy.split(":")[0] in " ".join(text.split())


def test_damaged_plugin_is_named_with_the_loaders_words(broken):
    (path,) = broken["unloaded_plugins"]
    assert path.endswith("libOpenMMTorchReference.so")
    assert "too short" in broken["unloaded_plugins"][path] or "ELF" in broken["unloaded_plugins"][path]
    assert any(remedy.startswith("libOpenMMTorchReference.so does not load") for remedy in broken["remedies"])
    assert "openmm-density[torchforce]" in broken["remedies"][0]
    probe = next(probe for probe in broken["probes"] if probe["backend"] == "TorchForce")
    assert not probe["works"] and "evaluation fails" in probe["problem"]
    assert broken["ok"] == any(probe["works"] for probe in broken["probes"])
    assert ("No force can be added to OpenMM here." in broken["report"]) == (not broken["ok"])


def test_missing_compiler_is_named_with_its_remedy(broken):
    assert broken["compiler"] is None
    assert broken["kernels"] and not any(kernel["loaded"] for kernel in broken["kernels"])
    assert all("/nonexistent" in kernel["error"] for kernel in broken["kernels"])
    assert any("apt-get install g++" in remedy for remedy in broken["remedies"])
    assert "/nonexistent" in broken["report"]


def test_a_process_that_is_killed_is_a_finding(tmp_path, monkeypatch):
    suicide = tmp_path / "python"
    suicide.write_text("#!/bin/sh\necho undefined symbol: foo >&2\nkill -SEGV $$\n")
    suicide.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(suicide))
    (one,), (other,) = ([probe] for _, probe in probed(["TorchForce", "PythonForce"], 60))
    assert (one.backend, other.backend, one.platform) == ("TorchForce", "PythonForce", "OpenCL")
    assert not one.works and not other.works
    assert one.problem == other.problem == "the process was killed by SIGSEGV (undefined symbol: foo)"


def probed(backends, timeout, said=lambda _: None):
    return probe_platform("OpenCL", backends, timeout, Doing(said))


def test_unknown_platform_is_a_finding():
    found = probe_here("TorchForce", "Abacus")
    assert found["made"] and not found["works"] and "Abacus" in found["problem"]


def test_emulated_opencl_is_warned_of_only_where_openmm_prefers_it():
    probes = [
        *healthy().probes,
        Probe("TorchForce", "OpenCL", True, None, "EPYC, Portable Computing Language", 2.0),
    ]
    (remedy,) = remedies_of(probes=probes, fastest_platform="OpenCL")
    assert "getPlatformByName('CPU')" in remedy
    assert remedies_of(probes=probes, fastest_platform="CPU") == []


def test_a_platform_on_which_nothing_runs_has_a_substitute():
    probes = [*healthy().probes, Probe("TorchForce", "CUDA", False, "no CUDA device", None, 0.0)]
    (remedy,) = remedies_of(probes=probes, fastest_platform="CUDA")
    assert "CUDA, which OpenMM takes unless told otherwise" in remedy and "--platform CPU" in remedy


def test_versions_that_do_not_fit_are_named_with_what_to_do():
    versions = healthy().versions | {"torch": "2.4.1+cpu", "gemmi": "0.7.0rc1"}
    (remedy,) = remedies_of(versions=versions)
    assert remedy == "torch 2.4.1+cpu is too old: pip install --upgrade 'torch>=2.6'."
    assert "2.4.1+cpu (too old: 2.6 or newer)" in as_text(replace(healthy(), versions=versions))

    versions = healthy().versions | {"openmmtorch": "1.5", "torch": "2.11.0+cu130", "openmm": "8.4.0.post2"}
    native = [Probe("NativeForce", "CPU", True, None, None, 0.1)]
    (remedy,) = remedies_of(versions=versions, probes=native)
    assert "openmmtorch 1.5 was built for torch 2.9, and here is torch 2.11.0+cu130: uninstall it" in remedy
    assert "pip uninstall openmmtorch" in remedy and "openmm-density[torchforce]" in remedy
    assert "2.11.0+cu130 (openmmtorch 1.5 was built for torch 2.9)" in as_text(
        replace(healthy(), versions=versions)
    )
    assert remedies_of(versions=versions | {"openmmtorch": None}, probes=native) == []
    assert remedies_of(versions=versions | {"torch": "2.9.1", "openmm": "8.4"}) == []
    acellera = healthy().versions | {
        "acellera-openmmtorch-cu13": "1.10",
        "torch": "2.10.0",
        "openmm": "8.6.1",
    }
    (remedy,) = remedies_of(versions=acellera, probes=native)
    assert "1.10 was built for openmm 8.4 or 8.5, and here is openmm 8.6.1: uninstall it" in remedy
    assert "pip uninstall acellera-openmmtorch-cu13)" in remedy


@pytest.mark.opencl
def test_a_platform_that_the_machine_does_not_have_is_no_fault(here):
    diagnosis = replace(healthy(), absent_platforms={"OpenCL": "libOpenCL.so.1"})
    assert "OpenCL" in as_text(diagnosis) and "which has no libOpenCL.so.1" in as_text(diagnosis)
    assert "does not load" not in as_text(diagnosis) and list(remedies(diagnosis)) == []
    assert here.unloaded_plugins == {}
    assert not here.absent_platforms.keys() & {probe.platform for probe in here.probes}


def test_every_operator_is_tried_on_a_gpu_and_agrees(here):
    assert {kernel.operator for kernel in here.gpu_kernels} == (set(gpu_calls()) if here.gpu else set())
    assert all(kernel.works for kernel in here.gpu_kernels), here.gpu_kernels


def test_a_gpu_kernel_that_fails_is_told(monkeypatch):
    kernels = [
        GpuKernel("density_splat", True, None, 1.5),
        GpuKernel("planarity", False, "out of resources", 0.1),
    ]
    (remedy,) = remedies_of(gpu="H200", gpu_kernels=kernels)
    assert remedy.startswith("On the GPU planarity does not work")
    text = as_text(replace(healthy(), gpu="H200", gpu_kernels=kernels))
    assert "planarity on the GPU" in text and "out of resources" in text and "1.5 s" in text


def test_a_cache_in_which_others_can_write_is_told(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    monkeypatch.setenv("OPENMM_DENSITY_CACHE", str(cache))
    states = compilation.status().values()
    problem = f"{cache} can be written to by everybody"
    assert {state.cache_problem for state in states} == {problem}
    text = as_text(replace(healthy(), cache_problem=problem))
    assert f"in place of the default one: {problem}" in text
    (remedy,) = remedies_of(cache_problem=problem)
    assert problem in remedy and "chmod go-w" in remedy and "OPENMM_DENSITY_CACHE" in remedy
    cache.chmod(0o700)
    assert {state.cache_problem for state in compilation.status().values()} == {None}


def test_missing_packages_and_failed_kernels_are_told():
    (missing,) = remedies_of(versions=healthy().versions | {"mrcfile": None})
    assert "pip install mrcfile" in missing
    kernels = [Kernel("density", True, False, None, None, [], "does not compile", "cpu.cpp:1: error: x\n")]
    (failed,) = remedies_of(kernels=kernels)
    assert "density" in failed and "CXX" in failed
    assert "cpu.cpp:1: error: x" in as_text(replace(healthy(), kernels=kernels))

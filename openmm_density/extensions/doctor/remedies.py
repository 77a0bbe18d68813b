"""What to do about everything that fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ...base.plugins import foreign_to_openmm_torch
from .diagnosis import Diagnosis, Probe
from .packages import OPTIONAL_PACKAGES, too_old

# OpenCL comes after CPU: on a machine without a GPU it is PoCL.
PLATFORMS_BY_MERIT = ("CUDA", "HIP", "CPU", "OpenCL", "Reference")

_FRESH = "pip install 'openmm-density[torchforce]' in a fresh environment"
_COMPILER = "a C++ compiler (apt-get install g++; conda install cxx-compiler)"


def remedies(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield what to do about everything that fails."""
    yield from _of_backends(diagnosis)
    yield from _of_packages(diagnosis)
    yield from _of_platforms(diagnosis)
    yield from _of_compiled_kernels(diagnosis)
    yield from _of_gpu(diagnosis)


def _working(diagnosis: Diagnosis) -> set[tuple[str, str]]:
    """Return the pairs of backend and platform that work."""
    return {(probe.backend, probe.platform) for probe in diagnosis.probes if probe.works}


def _of_backends(diagnosis: Diagnosis) -> Iterator[str]:
    working = _working(diagnosis)
    backends = {backend for backend, _ in working}
    if not working:
        yield (
            f"No force can be added to OpenMM: NativeForce needs {_COMPILER}, PythonForce openmm 8.5 or newer, and TorchForce "
            f"versions that fit together, as {_FRESH} installs them."
        )
    elif not backends & {"TorchForce", "NativeForce"}:
        yield (
            f"{', '.join(sorted(backends))} stands in for NativeForce and TorchForce, slower and without parameter derivatives: "
            f"NativeForce needs {_COMPILER}; what is amiss stands beside it above. {_FRESH} installs versions for TorchForce."
        )
    foreign = foreign_to_openmm_torch(diagnosis.versions)
    if foreign and "TorchForce" not in backends:
        found = _named({package: diagnosis.versions[package] or "" for package in foreign})
        wheels = " ".join(sorted({problem.split()[0] for problem in foreign.values()}))
        yield (
            f"{' and '.join(foreign.values())}, and here is {found}: uninstall it (pip uninstall {wheels}), as nothing "
            f"else needs it, or for TorchForce {_FRESH}."
        )
    if "CUDA" in {name for _, name in working} and ("CudaGraphForce", "CUDA") not in working:
        yield (
            "On CUDA the density force goes through torch and costs several times what it needs to: CudaGraphForce, which does "
            "not, needs a C++ compiler and Triton; what is amiss stands beside it above."
        )


def _of_packages(diagnosis: Diagnosis) -> Iterator[str]:
    missing = [
        package
        for package, version in diagnosis.versions.items()
        if version is None and package not in OPTIONAL_PACKAGES and package != "openmmtorch"
    ]
    if missing:
        yield f"{', '.join(missing)} is not installed: pip install {' '.join(missing)}."
    old = too_old(diagnosis.versions)
    if old:
        found = _named({package: diagnosis.versions[package] or "" for package in old})
        wanted = " ".join(f"'{package}>={version}'" for package, version in old.items())
        yield f"{found} {'is' if len(old) == 1 else 'are'} too old: pip install --upgrade {wanted}."
    for path, reason in diagnosis.unloaded_plugins.items():
        yield f"{Path(path).name} does not load: {_plugin_remedy(reason)}."


def _named(versions: Mapping[str, str]) -> str:
    """Return packages with their versions, as in ``torch 2.9 and openmm 8.4``."""
    return " and ".join(f"{package} {version}" for package, version in versions.items())


def _of_platforms(diagnosis: Diagnosis) -> Iterator[str]:
    working = {name for _, name in _working(diagnosis)}
    if working:
        broken = {probe.platform for probe in diagnosis.probes} - working
        best = min(working, key=_merit)
        for name in sorted(broken):
            again = ", which OpenMM takes unless told otherwise" if name == diagnosis.fastest_platform else ""
            yield f"No force runs on {name}{again}: name another platform (--platform {best})."
    emulated = next((probe for probe in diagnosis.probes if _is_emulated(probe)), None)
    if emulated is not None and diagnosis.fastest_platform == emulated.platform:
        yield (
            "OpenCL runs on the processor here (PoCL), OpenMM prefers it, and it is extremely slow: in scripts of your own "
            "name the platform (Platform.getPlatformByName('CPU')); commands take CUDA or CPU."
        )


def _of_compiled_kernels(diagnosis: Diagnosis) -> Iterator[str]:
    failed = [kernel.folder for kernel in diagnosis.kernels if kernel.tried and not kernel.loaded]
    if failed and diagnosis.compiler is None:
        yield (
            "Plain PyTorch serves in place of the C++ kernels, hundreds of times slower: install a compiler "
            "(apt-get install g++; conda install cxx-compiler) or name one in CXX."
        )
    elif failed:
        yield (
            f"The C++ kernels {', '.join(failed)} do not compile or load: see the compiler's words, or try "
            "another compiler (CXX=clang++)."
        )
    if diagnosis.cache_problem:
        yield (
            f"The default cache of compiled kernels is not used, as {diagnosis.cache_problem}: take others' right to write there "
            "away (chmod go-w), or name a folder in which only you can write in OPENMM_DENSITY_CACHE."
        )


def _of_gpu(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.gpu_problem:
        yield (
            f"The GPU cannot be used ({diagnosis.gpu_problem.rstrip('.')}): install torch's CUDA build from PyPI and a "
            "driver that is recent enough for it."
        )
    wrong = [kernel.operator for kernel in diagnosis.gpu_kernels if not kernel.works]
    if wrong:
        yield (
            f"On the GPU {', '.join(wrong)} {'does' if len(wrong) == 1 else 'do'} not work: name another platform "
            '(--platform CPU; with PythonForce device="cpu"), and report what stands beside it above.'
        )
    if diagnosis.gpu and not diagnosis.versions["triton"]:
        yield "The GPU's kernels need Triton: pip install 'openmm-density[gpu]'."


def _merit(name: str) -> int:
    return PLATFORMS_BY_MERIT.index(name) if name in PLATFORMS_BY_MERIT else len(PLATFORMS_BY_MERIT)


def _plugin_remedy(reason: str) -> str:
    if "libtorch_cuda" in reason or "libnvrtc" in reason or "libcudart" in reason:
        return f"it needs torch's CUDA build, with or without a GPU; {_FRESH} needs none"
    return f"{_FRESH} installs versions that fit together"


def _is_emulated(probe: Probe) -> bool:
    return probe.device is not None and any(
        word in probe.device.lower() for word in ("portable computing", "pocl")
    )

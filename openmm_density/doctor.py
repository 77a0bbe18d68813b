"""What works on this machine and what does not, with a remedy: ``openmm-density doctor``."""

# No annotations from __future__: TorchScript reads those of the probe's module.
import argparse
import functools
import importlib.metadata
import json
import platform
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from openmm import Context, LangevinMiddleIntegrator, Platform, System, unit
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .energies.forces import BACKENDS, BackendUnavailable, create_force
from .kernels import build as kernel_builds
from .kernels import density as density_kernels
from .kernels import interpolation, molecules, planarity, scatter
from .plugins import unloaded_plugins

PACKAGES = (
    *("openmm-density", "torch", "openmm", "openmmtorch", "mdtraj", "gemmi", "mrcfile"),
    *("numpy", "scipy", "pdbfixer", "matplotlib", "rich"),
)
OPTIONAL_PACKAGES = {
    "triton": "kernels on a GPU",
    "pyrama": "tables of the Ramachandran plot",
    "openmmforcefields": "parameters of ligands",
}
"""What each is for; openmm-torch has stand-ins, and a remedy of its own."""

# Compiling OpenCL kernels for a processor (PoCL) takes long.
PROBE_SECONDS = 120.0
PROBES_AT_ONCE = 2
# OpenCL comes after CPU: on a machine without a GPU it is PoCL.
PLATFORMS_BY_MERIT = ("CUDA", "HIP", "CPU", "OpenCL", "Reference")
# Some OpenCL drivers (PoCL) fail in OpenMM's own kernels for a single atom, whatever the force.
PROBE_ATOMS = 64
MODULE = "openmm_density.doctor"


@dataclass(frozen=True)
class Probe:
    """Whether one way of adding a force runs on one platform, as a process of its own found out.

    Attributes
    ----------
    backend, platform : str
        The way of adding a force, see `openmm_density.energies.forces.BACKENDS`, and OpenMM's platform.
    works : bool
        Whether energies, forces and two steps of dynamics were right.
    problem : str or None
        What went wrong.
    device : str or None
        The device, where the platform names one.
    seconds : float
        What making a Context, one evaluation and two steps took; 0 where it did not come to that.
    """

    backend: str
    platform: str
    works: bool
    problem: str | None
    device: str | None
    seconds: float


@dataclass(frozen=True)
class Kernel:
    """How the C++ of one operator stands.

    Attributes
    ----------
    folder : str
        The folder below ``kernels/``.
    tried, loaded : bool
        Whether loading it was tried, and whether it serves.
    library : str or None
        The compiled library.
    build_seconds : float or None
        What compiling it took, on the day it was done.
    built_now : bool
        Whether that was today, for this examination.
    flags : list of str
        The flags that decide speed.
    error : str or None
        Why it does not serve.
    output : str
        What the compiler or loader printed then.
    """

    folder: str
    tried: bool
    loaded: bool
    library: str | None
    build_seconds: float | None
    flags: list[str]
    error: str | None
    output: str
    built_now: bool = False


@dataclass(frozen=True)
class GpuKernel:
    """Whether the Triton of one operator serves, as a process of its own found out.

    Attributes
    ----------
    operator : str
        Its name.
    works : bool
        Whether it ran on the GPU, and agreed with the CPU.
    problem : str or None
        What went wrong.
    seconds : float
        What compiling and running it took.
    """

    operator: str
    works: bool
    problem: str | None
    seconds: float


@dataclass(frozen=True)
class Diagnosis:
    """What works here.

    Attributes
    ----------
    python, machine : str
        Python's version; system and processor.
    versions : dict of str to str or None
        By package; None where it is not installed.
    fastest_platform : str
        The platform that OpenMM takes where none is named.
    probes : list of Probe
        Every way of adding a force on every platform. One that `openmm_density.energies.forces.create_force` refuses
        (not installed, or wrong on the Reference platform) is listed once, with the Reference platform.
    unloaded_plugins : dict of str to str
        openmm-torch's plugins that do not load, with the loader's words.
    compiler, compiler_version, cache : str or None
        The C++ compiler, and the folder of compiled kernels.
    kernels : list of Kernel
        The compiled operators.
    gpu : str or None
        The name of the GPU that torch sees.
    gpu_problem : str or None
        Why torch sees none, where the machine seems to have one.
    remedies : list of str
        What to do about everything that fails, one sentence each, the most important first.
    gpu_kernels : list of GpuKernel
        The operators on the GPU; empty where there is none.
    """

    python: str
    machine: str
    versions: dict[str, str | None]
    fastest_platform: str
    probes: list[Probe]
    unloaded_plugins: dict[str, str]
    compiler: str | None
    compiler_version: str | None
    cache: str | None
    kernels: list[Kernel]
    gpu: str | None
    gpu_problem: str | None
    remedies: list[str]
    gpu_kernels: list[GpuKernel] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether at least one way of adding a force runs on at least one platform."""
        return any(probe.works for probe in self.probes)

    def as_dict(self) -> dict[str, Any]:
        """Give everything as plain lists, dictionaries, numbers and words, ``ok`` included."""
        return {"ok": self.ok, **asdict(self)}


def examine(
    *, build: bool = True, timeout: float = PROBE_SECONDS, progress: Callable[[str], None] | None = None
) -> Diagnosis:
    """Find out what works on this machine.

    Every way of adding a force is tried on every platform of OpenMM, each platform in a process of its own, because
    libraries that do not fit together kill the process: the ways that it had not tried then get another one.

    Parameters
    ----------
    build : bool
        Whether to compile the C++ kernels that are not compiled yet (about 20 s each) and load them.
    timeout : float
        Seconds that each of these processes may take.
    progress : callable, optional
        Called, from any thread, with what is going on now, as in ``trying forces on CPU; compiling density``.
    """
    doing = _Doing(progress or (lambda _: None))
    platforms = [Platform.getPlatform(i) for i in range(Platform.getNumPlatforms())]
    gpu, gpu_problem = _gpu()
    # PoCL's compiling takes longest, so it begins first.
    names = sorted((each.getName() for each in platforms), key=lambda name: name != "OpenCL")
    with ThreadPoolExecutor(PROBES_AT_ONCE) as pool:
        probed = [pool.submit(_probe_platform, name, BACKENDS, timeout, doing) for name in names]
        on_gpu = pool.submit(_gpu_kernels, timeout, doing) if gpu and _version("triton") else None
        kernels = _kernels(build, doing)
        probes = [probe for future in probed for probe in future.result()]
        gpu_kernels = on_gpu.result() if on_gpu else []
    states = kernel_builds.status().values()
    state = next(iter(states), None)
    found = {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": {package: _version(package) for package in (*PACKAGES, *OPTIONAL_PACKAGES)},
        "fastest_platform": max(platforms, key=lambda candidate: candidate.getSpeed()).getName(),
        "probes": _in_order(probes),
        "unloaded_plugins": unloaded_plugins(),
        "compiler": state.compiler if state else None,
        "compiler_version": state.compiler_version if state else None,
        "cache": str(state.cache) if state else None,
        "kernels": kernels,
        "gpu": gpu,
        "gpu_problem": gpu_problem,
        "gpu_kernels": gpu_kernels,
    }
    return Diagnosis(**found, remedies=list(_remedies(Diagnosis(**found, remedies=[]))))


def report(diagnosis: Diagnosis) -> Group:
    """Lay a diagnosis out for reading.

    Parameters
    ----------
    diagnosis : Diagnosis
        As `examine` gives it.

    Returns
    -------
    rich.console.Group
        For ``rich.console.Console().print``.
    """
    versions = _table()
    versions.add_row("Python", diagnosis.python)
    for package, version in diagnosis.versions.items():
        use = OPTIONAL_PACKAGES.get(package)
        absent = Text("not installed" if use is None else f"not installed (optional: {use})", style="dim")
        versions.add_row(package, version or absent)

    forces = _table("force", "platform", "", "")
    for probe in diagnosis.probes:
        ran = ", ".join(filter(None, [probe.device, f"{probe.seconds:.1f} s"]))
        forces.add_row(probe.backend, probe.platform, _mark(probe.works), Text(probe.problem or ran))

    kernels = _table("kernel", "", "")
    for kernel in diagnosis.kernels:
        if kernel.loaded or not kernel.tried:
            took = "not compiled yet"
            if kernel.library:
                took = f"compiled{'' if kernel.built_now else ' earlier'}, in {kernel.build_seconds:.0f} s"
            said = ", ".join([took, *([" ".join(kernel.flags)] if kernel.flags else [])])
        else:
            said = kernel.error or ""
        kernels.add_row(kernel.folder, _mark(kernel.loaded if kernel.tried else None), Text(said))
    for kernel in diagnosis.gpu_kernels:
        said = kernel.problem or f"{kernel.seconds:.1f} s"
        kernels.add_row(f"{kernel.operator} on the GPU", _mark(kernel.works), Text(said))
    compiler = _table()
    compiler.add_row("compiler", Text(diagnosis.compiler_version or "none"))
    compiler.add_row("cache", Text(diagnosis.cache or "none"))
    compiler.add_row("GPU", Text(diagnosis.gpu or diagnosis.gpu_problem or "none that torch can use"))

    parts: list[Any] = [versions, Text(), forces, Text(), kernels, compiler]
    for path, reason in diagnosis.unloaded_plugins.items():
        parts += [
            Text(),
            Text(f"{Path(path).name} does not load", style="red"),
            Padding(Text(reason), (0, 2), expand=False),
        ]
    for kernel in diagnosis.kernels:
        if kernel.output and kernel.output.strip() != kernel.error:
            tail = "\n".join(kernel.output.strip().splitlines()[-12:])
            parts += [
                Text(),
                Text(f"the {kernel.folder} kernel", style="red"),
                Padding(Text(tail), (0, 2), expand=False),
            ]
            break
    if diagnosis.remedies:
        parts.append(Text())
        parts += [Text(f"→ {remedy}", style="yellow") for remedy in diagnosis.remedies]
    parts.append(Text())
    parts.append(
        Text("Fitting works here.", style="green")
        if diagnosis.ok
        else Text("No force can be added to OpenMM here.", style="bold red")
    )
    return Group(*parts)


def _table(*headers: str) -> Table:
    table = Table(box=None, pad_edge=False, show_header=bool(headers))
    for header in headers or ("", ""):
        table.add_column(header)
    return table


def _mark(works: bool | None) -> Text:
    if works is None:
        return Text("–", style="dim")
    return Text("yes", style="green") if works else Text("no", style="red")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


class _Doing:
    """Say what is going on now, of several things at once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._things: list[str] = []
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self, thing: str) -> Iterator[None]:
        with self._lock:
            self._things.append(thing)
            self._say("; ".join(self._things))
        try:
            yield
        finally:
            with self._lock:
                self._things.remove(thing)
                self._say("; ".join(self._things))


def _kernels(build_them: bool, doing: _Doing) -> list[Kernel]:
    outputs = {}
    before = kernel_builds.status()
    if build_them:
        for folder in kernel_builds.folders():
            with (
                warnings.catch_warnings(),
                doing(f"{'loading' if before[folder].library else 'compiling'} {folder}"),
            ):
                # The report says the same.
                warnings.simplefilter("ignore", RuntimeWarning)
                outputs[folder] = "" if kernel_builds.load(folder) else kernel_builds.error_text(folder)
    return [
        Kernel(
            folder=folder,
            tried=state.tried,
            loaded=state.loaded,
            library=str(state.library) if state.library else None,
            build_seconds=state.build_seconds,
            flags=list(state.flags),
            error=state.error,
            output=outputs.get(folder, ""),
            built_now=state.library is not None and before[folder].library is None,
        )
        for folder, state in kernel_builds.status().items()
    ]


def _gpu() -> tuple[str | None, str | None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if available:
        return torch.cuda.get_device_name(0), None
    if not Path("/dev/nvidiactl").exists():
        return None, None
    if torch.version.cuda is None:
        return None, f"torch {torch.__version__} is built without CUDA"
    reasons = [str(warning.message).strip().splitlines()[0] for warning in caught]
    return None, reasons[0] if reasons else f"torch {torch.__version__} finds no usable GPU"


def _probe_platform(
    name: str, backends: Sequence[str], timeout: float, doing: _Doing
) -> list[tuple[bool, Probe]]:
    """Try ways of adding a force on one platform; also say whether a force can be made at all."""
    found: list[tuple[bool, Probe]] = []
    while len(found) < len(backends):
        left = backends[len(found) :]
        with doing(f"trying forces on {name}"):
            lines, problem = _output_of(["--probe", name, *left], timeout)
        for said in (json.loads(line) for line in lines if line.startswith('{"made"')):
            made = said.pop("made")
            found.append((made, Probe(**said)))
        if len(found) < len(backends):
            found.append((True, Probe(backends[len(found)], name, False, problem, None, 0.0)))
    return found


def _in_order(probes: Sequence[tuple[bool, Probe]]) -> list[Probe]:
    """Give probes by backend, Reference before other platforms; a backend that cannot be made only there."""
    kept = [probe for made, probe in probes if made or probe.platform == "Reference"]
    return sorted(
        kept, key=lambda probe: (BACKENDS.index(probe.backend), probe.platform != "Reference", probe.platform)
    )


def _gpu_kernels(timeout: float, doing: _Doing) -> list[GpuKernel]:
    """Try the operators on the GPU in a process of its own: an error there ends all use of the GPU."""
    with doing("trying the kernels on the GPU"):
        lines, problem = _output_of(["--probe-gpu"], timeout)
    kernels = [GpuKernel(**json.loads(line)) for line in lines if line.startswith('{"operator"')]
    said = {kernel.operator: kernel for kernel in kernels}
    return [said.get(name) or GpuKernel(name, False, problem, 0.0) for name in _gpu_calls()]


def _output_of(arguments: Sequence[str], timeout: float) -> tuple[list[str], str]:
    """Run this module in a process of its own; give the lines that it printed, and how it ended."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", MODULE, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode(errors="replace") if error.stdout else ""
        return output.splitlines(), f"was not done within {timeout:g} s"
    last_words = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode < 0:
        problem = f"the process was killed by {signal.Signals(-done.returncode).name}"
    else:
        problem = f"the process ended with status {done.returncode}"
    return done.stdout.splitlines(), problem + (f" ({last_words})" if last_words else "")


def _remedies(diagnosis: Diagnosis) -> Iterator[str]:
    probes = diagnosis.probes
    working = {(probe.backend, probe.platform) for probe in probes if probe.works}
    working_backends = {backend for backend, _ in working}
    working_platforms = {name for _, name in working}
    fresh = "pip install 'openmm-density[torchforce]' in a fresh environment"
    if not working:
        yield f"No force can be added to OpenMM: {fresh} installs versions that fit together."
    elif "TorchForce" not in working_backends:
        yield (
            f"TorchForce does not work and {', '.join(sorted(working_backends))} stands in for it, without "
            f"parameter derivatives: {fresh} installs versions that fit together."
        )
    missing = [
        package
        for package, version in diagnosis.versions.items()
        if version is None and package not in OPTIONAL_PACKAGES and package != "openmmtorch"
    ]
    if missing:
        yield f"{', '.join(missing)} is not installed: pip install {' '.join(missing)}."
    for path, reason in diagnosis.unloaded_plugins.items():
        yield f"{Path(path).name} does not load: {_plugin_remedy(reason, fresh)}."
    if working:
        broken = {probe.platform for probe in probes} - working_platforms
        best = min(working_platforms, key=_merit)
        for name in sorted(broken):
            again = ", which OpenMM takes unless told otherwise" if name == diagnosis.fastest_platform else ""
            yield f"No force runs on {name}{again}: name another platform (--platform {best})."
    emulated = next((probe for probe in probes if _is_emulated(probe)), None)
    if emulated is not None and diagnosis.fastest_platform == emulated.platform:
        yield (
            "OpenCL runs on the processor here (PoCL), OpenMM prefers it, and it is extremely slow: name the "
            "platform explicitly (--platform CPU, or Platform.getPlatformByName('CPU'))."
        )
    failed = [kernel.folder for kernel in diagnosis.kernels if kernel.tried and not kernel.loaded]
    if failed and diagnosis.compiler is None:
        yield (
            "Plain PyTorch serves in place of the C++ kernels, ten times slower or worse: install a compiler "
            "(apt-get install g++; conda install gxx) or name one in CXX."
        )
    elif failed:
        yield (
            f"The C++ kernels {', '.join(failed)} do not compile or load: see the compiler's words, or try "
            "another compiler (CXX=clang++)."
        )
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


def _plugin_remedy(reason: str, fresh: str) -> str:
    if "libcuda.so" in reason:
        return "it needs the NVIDIA driver, and without an NVIDIA GPU it is of no use"
    if "libtorch_cuda" in reason or "libnvrtc" in reason or "libcudart" in reason:
        return "it needs torch's CUDA build, with or without a GPU: pip install 'torch==2.9.*' from PyPI"
    return f"{fresh} installs versions that fit together"


def _is_emulated(probe: Probe) -> bool:
    return probe.device is not None and any(
        word in probe.device.lower() for word in ("portable computing", "pocl")
    )


class _Harmonic(torch.nn.Module):
    """E = k Σ|x|²."""

    def forward(self, positions: torch.Tensor, strength: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        k = strength.reshape(())
        with torch.no_grad():
            square = (positions * positions).sum()
            forces = -2 * k.to(positions) * positions
        return k.to(torch.float64) * square, forces.contiguous()


def probe(backend: str, platform_name: str) -> dict[str, Any]:
    """Try one way of adding a force on one platform, in this process, which may not outlive it.

    Parameters
    ----------
    backend : str
        One of `openmm_density.energies.forces.BACKENDS`.
    platform_name : str
        OpenMM's name of the platform.

    Returns
    -------
    dict
        ``made`` (whether `create_force` gives a force) and the fields of `Probe`.
    """
    strength = 3.0
    try:
        force = create_force(
            _Harmonic(),
            "k",
            strength,
            periodic=False,
            name="probe",
            backend=backend,
            parameter_derivative=False,
        )
    except BackendUnavailable as error:
        problem = str(error).partition("does not work here: ")[2] or str(error)
        return {"made": False, **asdict(Probe(backend, platform_name, False, problem, None, 0.0))}
    system = System()
    for _ in range(PROBE_ATOMS):
        system.addParticle(12.0)
    system.addForce(force)
    positions = np.random.default_rng(0).random((PROBE_ATOMS, 3))
    device, problem = None, None
    start = time.perf_counter()
    try:
        integrator = LangevinMiddleIntegrator(300, 1, 0.001)
        context = Context(system, integrator, Platform.getPlatformByName(platform_name))
        device = _device(context)
        context.setPositions(positions)
        state = context.getState(getEnergy=True, getForces=True)
        energy = state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
        forces = state.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)
        if not np.isclose(energy, strength * (positions**2).sum(), rtol=1e-4):
            problem = f"a wrong energy ({energy:g} in place of {strength * (positions**2).sum():g} kJ/mol)"
        elif not np.allclose(forces, -2 * strength * positions, rtol=1e-4, atol=1e-4):
            problem = "wrong forces"
        else:
            integrator.step(2)
            context.getState(getEnergy=True)
    except Exception as error:
        problem = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    seconds = round(time.perf_counter() - start, 3)
    return {"made": True, **asdict(Probe(backend, platform_name, problem is None, problem, device, seconds))}


def _gpu_calls() -> dict[str, Callable[[torch.device], tuple[torch.Tensor, ...]]]:
    """Give a small evaluation of every operator."""
    random = np.random.default_rng(0)
    positions = torch.from_numpy(random.random((200, 3)) * 1.5).float()
    amplitudes, exponents = torch.ones(200, 1), torch.full((200, 1), 50.0)
    atoms = torch.arange(200)
    voxels = torch.from_numpy(random.random((16, 17, 18))).float()
    matrix, origin = torch.eye(3, dtype=torch.float64) / 10, torch.zeros(3, dtype=torch.float64)
    planes = planarity.pack_planes([(np.arange(200).reshape(40, 5), 0.02)])
    steps = torch.arange(8, dtype=torch.int32).repeat(20, 1)
    rows = torch.arange(48, dtype=torch.int32).reshape(1, 6, 8).repeat(20, 1, 1)
    operators = {
        "density_splat": (
            density_kernels.density_splat,
            (positions, amplitudes, exponents, 0.5, matrix, origin, list(voxels.shape), False),
        ),
        "density_gather": (
            density_kernels.density_gather,
            (voxels, positions, amplitudes, exponents, 0.5, matrix, origin, False),
        ),
        "density_similarity": (
            density_kernels.density_similarity,
            (
                *(
                    positions,
                    atoms,
                    amplitudes,
                    exponents,
                    0.5,
                    voxels,
                    density_kernels.target_moments(voxels),
                ),
                *(matrix, origin, False, density_kernels.CROSS_CORRELATION, 1.0),
            ),
        ),
        "planarity": (planarity.planarity, (positions, *planes)),
        "map_potential": (
            interpolation.map_potential,
            (positions, atoms, torch.ones(200), voxels, matrix, origin, False),
        ),
        "whole_molecules": (
            molecules.whole_molecules,
            (positions, atoms, atoms, 10 * torch.arange(21), torch.zeros(20, 3).double(), torch.eye(3)),
        ),
        "structured_scatter_add": (
            scatter.structured_scatter_add,
            (torch.ones(20, 8, 6, 8), 48 * steps, rows, 8 * 48),
        ),
        "structured_gather": (scatter.structured_gather, (torch.arange(384.0), 48 * steps, rows)),
    }

    def call(name: str, device: torch.device) -> tuple[torch.Tensor, ...]:
        operator, arguments = operators[name]
        moved = [value.to(device) if isinstance(value, torch.Tensor) else value for value in arguments]
        with torch.no_grad():
            found = operator(*moved)
        return found if isinstance(found, tuple) else (found,)

    return {name: functools.partial(call, name) for name in operators}


def probe_gpu() -> Iterator[GpuKernel]:
    """Try every operator on the GPU, in this process, and compare with the CPU."""
    for name, call in _gpu_calls().items():
        expected = call(torch.device("cpu"))
        problem = None
        start = time.perf_counter()
        try:
            found = [result.cpu() for result in call(torch.device("cuda"))]
        except Exception as error:
            problem = (str(error).strip() or type(error).__name__).splitlines()[0]
        else:
            for one, other in zip(found, expected, strict=True):
                if not torch.allclose(
                    one.double(), other.double(), rtol=1e-4, atol=1e-4 * float(other.abs().max())
                ):
                    problem = "another result than on the CPU"
        yield GpuKernel(name, problem is None, problem, round(time.perf_counter() - start, 3))


def _device(context: Context) -> str | None:
    used = context.getPlatform()
    names = [name for name in ("DeviceName", "OpenCLPlatformName") if name in used.getPropertyNames()]
    return ", ".join(used.getPropertyValue(context, name) for name in names) or None


def _main() -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--probe", nargs="+", metavar=("PLATFORM", "BACKEND"))
    which.add_argument("--probe-gpu", action="store_true")
    options = parser.parse_args()
    if options.probe_gpu:
        for kernel in probe_gpu():
            print("\n" + json.dumps(asdict(kernel)), flush=True)
        return
    name, *backends = options.probe
    for backend in backends:
        # A line of its own: drivers print to standard output too.
        print("\n" + json.dumps(probe(backend, name)), flush=True)


if __name__ == "__main__":
    _main()

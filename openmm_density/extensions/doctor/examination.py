"""Find out what works on this machine."""

from __future__ import annotations

import json
import platform
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from openmm import Platform

from openmm_density.kernels import compilation

from ...base.multi_process_service import control_program
from ...base.plugins import absent_platforms, unloaded_plugins
from ...energies.forces import BACKENDS, ON_ALL_PLATFORMS
from .diagnosis import Diagnosis, GpuKernel, Kernel, Probe
from .packages import installed_versions
from .probes import gpu_calls
from .remedies import remedies

# Compiling OpenCL kernels for a processor (PoCL) takes long.
PROBE_SECONDS = 120.0
PROBES_AT_ONCE = 2


def examine(
    *, build: bool = True, timeout: float = PROBE_SECONDS, progress: Callable[[str], None] | None = None
) -> Diagnosis:
    """Find out what works on this machine.

    Every way of adding a force is tried on every platform of OpenMM, each platform in a process of its own, because
    libraries that do not fit together kill the process: the ways that it had not tried then get another one.

    Parameters
    ----------
    build : bool
        Whether to compile the C++ kernels that are not compiled yet (half a minute on two cores) and load them.
    timeout : float
        Seconds that each of these processes may take.
    progress : callable, optional
        Called, from any thread, with what is going on now, as in ``trying forces on CPU; compiling density``.
    """
    doing = Doing(progress or (lambda _: None))
    platforms = [Platform.getPlatform(i) for i in range(Platform.getNumPlatforms())]
    gpu, gpu_problem = _gpu()
    # PoCL's compiling takes longest, so it begins first.
    names = sorted((each.getName() for each in platforms), key=lambda name: name != "OpenCL")
    with ThreadPoolExecutor(PROBES_AT_ONCE) as pool:
        backends = {"CUDA": BACKENDS}
        probed = [
            pool.submit(probe_platform, name, backends.get(name, ON_ALL_PLATFORMS), timeout, doing)
            for name in names
        ]
        versions = installed_versions()
        on_gpu = pool.submit(probe_gpu_kernels, timeout, doing) if gpu and versions["triton"] else None
        kernels = _kernels(build, doing)
        probes = [probe for future in probed for probe in future.result()]
        gpu_kernels = on_gpu.result() if on_gpu else []
    states = compilation.status().values()
    state = next(iter(states), None)
    found = {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": versions,
        "fastest_platform": max(platforms, key=lambda candidate: candidate.getSpeed()).getName(),
        "probes": _in_order(probes),
        "unloaded_plugins": unloaded_plugins(),
        "absent_platforms": absent_platforms(),
        "compiler": state.compiler if state else None,
        "compiler_version": state.compiler_version if state else None,
        "cache": str(state.cache) if state else None,
        "cache_problem": state.cache_problem if state else None,
        "kernels": kernels,
        "gpu": gpu,
        "gpu_problem": gpu_problem,
        "gpu_kernels": gpu_kernels,
        "multi_process_service": control_program(),
    }
    return Diagnosis(**found, remedies=list(remedies(Diagnosis(**found, remedies=[]))))


def _compiling(folders: Sequence[str]) -> str:
    """Return what is going on while kernels are compiled or loaded, as one line of a terminal has room for it."""
    if not folders:
        return "loading"
    return f"compiling {', '.join(folders) if len(folders) < 3 else f'{len(folders)} operators'}"


def _kernels(build_them: bool, doing: Doing) -> list[Kernel]:
    outputs: dict[str, str] = {}
    before = compilation.status()
    if build_them:
        missing = [folder for folder, state in before.items() if state.library is None]
        with warnings.catch_warnings(), doing(_compiling(missing)):
            # The report says the same.
            warnings.simplefilter("ignore", RuntimeWarning)
            compilation.load_all()
            outputs = {folder: compilation.error_text(folder) for folder in before}
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
        for folder, state in compilation.status().items()
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


def _in_order(probes: Sequence[tuple[bool, Probe]]) -> list[Probe]:
    """Return probes by backend, Reference before other platforms; a backend that cannot be made only there."""
    kept = [probe for made, probe in probes if made or probe.platform == "Reference"]
    return sorted(
        kept, key=lambda probe: (BACKENDS.index(probe.backend), probe.platform != "Reference", probe.platform)
    )


class Doing:
    """What is going on, of several things at once: `say` is called with all of it, in any thread, when one begins or ends."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._things: list[str] = []
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self, thing: str) -> Iterator[None]:
        """Report that this is going on, until the ``with`` ends."""
        with self._lock:
            self._things.append(thing)
            self._say("; ".join(self._things))
        try:
            yield
        finally:
            with self._lock:
                self._things.remove(thing)
                self._say("; ".join(self._things))


def probe_platform(
    name: str, backends: Sequence[str], timeout: float, doing: Doing
) -> list[tuple[bool, Probe]]:
    """Try ways of adding a force on one platform."""
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


def probe_gpu_kernels(timeout: float, doing: Doing) -> list[GpuKernel]:
    """Try the operators on the GPU in one process: an error there ends all use of the GPU."""
    with doing("trying the kernels on the GPU"):
        lines, problem = _output_of(["--probe-gpu"], timeout)
    kernels = [GpuKernel(**json.loads(line)) for line in lines if line.startswith('{"operator"')]
    said = {kernel.operator: kernel for kernel in kernels}
    return [said.get(name) or GpuKernel(name, False, problem, 0.0) for name in gpu_calls()]


def _output_of(arguments: Sequence[str], timeout: float) -> tuple[list[str], str]:
    """Run this package in a process of its own; return the lines that it printed, and how it ended."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __package__, *arguments],
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

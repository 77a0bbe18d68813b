"""What an examination of this machine finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


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
        openmm-torch's plugins that should load and do not, with the loader's words.
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
    cache_problem : str or None
        Why that is not the folder which the environment asks for: others could put libraries there.
    absent_platforms : dict of str to str
        Platforms that the machine does not have, which is no fault, with the library that they would need.
    multi_process_service : str or None
        The control program of NVIDIA's Multi-Process Service, by which fits share a GPU at one time.
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
    cache_problem: str | None = None
    absent_platforms: dict[str, str] = field(default_factory=dict)
    multi_process_service: str | None = None

    @property
    def ok(self) -> bool:
        """Whether at least one way of adding a force runs on at least one platform."""
        return any(probe.works for probe in self.probes)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain lists, dictionaries, numbers and words, ``ok`` included."""
        return {"ok": self.ok, **asdict(self)}

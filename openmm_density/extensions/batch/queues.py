"""Queues of batch systems: what a job of theirs asks for, and its script, by dask-jobqueue."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import InputError, as_argument
from ...base.wording import one_line

if TYPE_CHECKING:
    from dask_jobqueue import JobQueueCluster

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SYSTEMS = {
    "slurm": "SLURMCluster",
    "pbs": "PBSCluster",
    "lsf": "LSFCluster",
    "htcondor": "HTCondorCluster",
    "sge": "SGECluster",
    "oar": "OARCluster",
    "moab": "MoabCluster",
}
"""Batch systems, and what dask-jobqueue calls them."""

# Where a script is printed and no scheduler runs.
_UNKNOWN_SCHEDULER = "tcp://SCHEDULER:PORT"


@dataclass(frozen=True)
class QueueOptions:
    """What jobs of a batch system ask for; InputError for an unknown system or request, or without dask-jobqueue."""

    system: str  # One of `SYSTEMS`
    fits: int  # That one of its jobs runs side by side
    # Of dask-jobqueue: ``cores``, ``memory``, ``walltime``, ``queue``, ``job_extra_directives`` …
    options: Mapping[str, Any]
    source: Path | None = None  # Where they stand

    def __post_init__(self) -> None:
        if self.system not in SYSTEMS:
            raise InputError(
                "must be a known batch system",
                argument="queue",
                found=f'"{self.system}"',
                remedy=f"use one of {', '.join(SYSTEMS)}",
            )
        if importlib.util.find_spec("dask_jobqueue") is None:
            raise InputError(
                "needs dask-jobqueue, which is not installed",
                argument="queue",
                remedy='pip install "openmm-density[batch]"',
            )
        if not (isinstance(self.fits, int) and self.fits > 0):
            raise InputError(
                "fits must be a whole number above 0", source=self.source, found=self.fits, remedy="give 1"
            )
        for name, example in (("cores", "8"), ("memory", '"16 GB"')):
            if name not in self.options:
                raise InputError(
                    f"{name} is required",
                    source=self.source,
                    remedy=f"add {name} = {example}",
                )
        self.job_script()

    @property
    def threads(self) -> int:
        """Of each fit."""
        return max(int(self.options["cores"]) // self.fits, 1)

    def job_script(self) -> str:
        """Return the script that the batch system is given, without starting anything."""
        job = self._class().job_cls
        return self._checked(
            lambda: job(scheduler=_UNKNOWN_SCHEDULER, name="worker", **self._arguments()).job_script()
        )

    def cluster(self) -> JobQueueCluster:
        """Start a scheduler here for workers in the queue."""
        command = self._class().job_cls.submit_command.split()[0]
        if shutil.which(command) is None:
            raise InputError(
                f"needs {command}, which is not on this machine",
                argument="queue",
                found=f'"{self.system}"',
                remedy="use a machine from which jobs are submitted",
            )
        return self._checked(lambda: self._class()(**self._arguments()))

    def _class(self) -> type[JobQueueCluster]:
        import dask_jobqueue

        return getattr(dask_jobqueue, SYSTEMS[self.system])

    def _arguments(self) -> dict[str, Any]:
        given = dict(self.options)
        # The cores are those of the fits: the worker itself has a thread for each fit that it waits for.
        extra = ["--nthreads", str(self.fits), *given.pop("worker_extra_args", [])]
        arguments = {"job_name": "openmm-density", **given, "processes": 1, "worker_extra_args": extra}
        if self.system == "lsf" and shutil.which("lsid") is None:
            # dask-jobqueue asks LSF for its version, which a dry run may have to do without.
            arguments.setdefault("use_stdin", True)
        return arguments

    def _checked(self, make: Any) -> Any:
        try:
            return make()
        except (TypeError, ValueError, OSError, RuntimeError) as error:
            raise InputError(
                f"dask-jobqueue does not take it for {self.system} ({one_line(error)})",
                source=self.source,
                remedy=f"use the arguments of dask_jobqueue.{SYSTEMS[self.system]}",
            ) from None


def read_queue_options(system: str, path: str | Path | None) -> QueueOptions:
    """Return what the jobs of a batch system ask for, from a TOML file."""
    if path is None:
        raise InputError(
            "is required",
            argument="queue_options",
            remedy=f"give a TOML file with cores, memory and walltime beside {as_argument('queue')}",
        )
    path = Path(path)
    try:
        options = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"it cannot be read ({error.strerror})", source=path, remedy="give a TOML file"
        ) from None
    except ValueError as error:
        raise InputError(f"it is not TOML ({one_line(error)})", source=path, remedy="correct it") from None
    fits: Any = options.pop("fits", 1)
    with suppress(KeyError):
        options.update(options.pop(system))
    return QueueOptions(system, fits, options, path)

"""How much memory a fit takes, and fits that wait on a host until there is enough for them."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import re
import struct
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .jobs import Job

# Bytes that any fit takes, and for each atom with hydrogens and each voxel of the map as it is read: more than was measured, see
# docs/guide/many_fits.md.
_BASE, _PER_ATOM, _PER_VOXEL = 1.0e9, 60e3, 12.0
# Bytes of a line of a PDB file, and hydrogens: half of a protein's atoms.
_PER_LINE, _WITH_HYDROGENS = 81, 2.0
# Of the memory that there is: the rest is for what runs beside the fits.
_PART = 0.9
_INTERVAL = 0.5
_MEGABYTE = 1 << 20


def job_memory(job: Job) -> int:
    """Return about how many bytes a fit takes, from the sizes of its model and its map."""
    atoms = _WITH_HYDROGENS * _size(job.model) / _PER_LINE
    voxels = _size(job.map) / 4
    return int(_BASE + _PER_ATOM * atoms + _PER_VOXEL * voxels)


def host_memory() -> int:
    """Return the bytes that processes beside this one may take: those of the host, or of the group that it is limited to."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no control groups, or no limit
        group = _control_group().rpartition(":")[2]
        limits = [
            int((folder / "memory.max").read_text())
            for each in (Path(group), *Path(group).parents)
            for folder in [Path("/sys/fs/cgroup", *each.parts[1:])]
            if re.fullmatch(r"\d+\s*", _text(folder / "memory.max"))
        ]
        total = min([total, *limits])
    return int(_PART * total)


class MemoryQueue:
    """Fits of one batch on one host, of which each begins when the memory of all that run allows it, in their order.

    Each has a file that it keeps locked: what a killed process leaves counts no longer.

    Parameters
    ----------
    name : str
        Of the batch.
    total : int, optional
        Bytes that all may take; those of the host by default.
    """

    def __init__(self, name: str, total: int | None = None) -> None:
        self._total = host_memory() if total is None else total
        # Batch systems limit each of their jobs on a host: what runs in another one does not count.
        self._key = hashlib.sha256(f"{name} {_control_group()}".encode()).hexdigest()[:16]
        self._folder = Path(tempfile.gettempdir(), f"openmm-density-{os.getuid()}")

    @contextmanager
    def room(self, memory: int, waiting: Callable[[], None]) -> Iterator[None]:
        """Wait until there is room for a fit, and keep it; one that needs more than there is runs alone."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if self._folder.lstat().st_uid != os.getuid():
            raise PermissionError(f"{self._folder} is another user's: remove it, or set TMPDIR")
        # In their order by name.
        path = (
            self._folder / f"{self._key}-{time.time_ns():020d}-{memory // _MEGABYTE}-{uuid.uuid4().hex[:8]}"
        )
        unnamed = path.with_name(f".{path.name}")
        # A fit's process does not inherit it: the room is free when the fit has ended, or this process.
        descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.rename(unnamed, path)
            while sum(before := self._before(path.name)) + memory > self._total and before:
                waiting()
                time.sleep(_INTERVAL)
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def _before(self, own: str) -> list[int]:
        """Return the bytes of those that came before, running or waiting."""
        found = []
        for name in sorted(os.listdir(self._folder)):
            if not self._key <= name < own:
                continue
            if _is_locked(self._folder / name):
                found.append(int(name.split("-")[2]) * _MEGABYTE)
            else:
                (self._folder / name).unlink(missing_ok=True)
        return found


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _control_group() -> str:
    return (
        _text(Path("/proc/self/cgroup")).strip().splitlines()[-1]
        if Path("/proc/self/cgroup").exists()
        else ""
    )


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _size(path: str) -> float:
    """Return the bytes of a file, unpacked."""
    try:
        if path.endswith(".gz"):
            with open(path, "rb") as file:  # its last bytes tell, up to 4 GB
                file.seek(-4, os.SEEK_END)
                return float(struct.unpack("<I", file.read())[0])
        return float(os.path.getsize(path))
    except (OSError, gzip.BadGzipFile, struct.error):
        return 0.0

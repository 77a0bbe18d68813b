"""A fit in progress on disk: what it needs to go on after any interruption."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import struct
import tempfile
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
from openmm import app

from ..base.atomic_files import remove_abandoned, replacing, write_text
from ..base.errors import InputError
from ..base.stopwatch import Stopwatch
from ..base.units import ANGSTROM_PER_NANOMETER, takes_units
from ..models.structure_files import Header, write_cif
from .fit_result import Row
from .helper_processes import HelperProcesses, HelperResult
from .locks import LOCK
from .run_state import RunState
from .state_files import DamagedState, read_state, write_state

STATE, PREVIOUS, TRAJECTORY, LAST_GOOD = "state.npz", "state.previous.npz", "trajectory.dcd", "last_good.cif"
LOG, TIMES = "log.csv", "times.json"

# In s; no fit takes so long.
_AGES = 1e10


class RunFolder:
    """The files of a fit in progress.

    The state is kept in two generations, each put in place by an atomic write, so that where one cannot be read there is the one
    before.

    Parameters
    ----------
    path : path
        The folder; made where it does not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._model: HelperResult[None] | None = None
        self._write_newest: Callable[[], HelperResult[None]] | None = None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise InputError(
                f"it cannot be written to ({error.strerror or error})",
                source=self.path,
                remedy="choose another folder",
            ) from None
        if (
            self.trajectory.is_symlink()
        ):  # the folder may be somebody else's, and the file that it leads to anybody's
            raise InputError(
                "it is a symbolic link, and the file that it leads to would be overwritten",
                source=self.trajectory,
                remedy="replace the link by the file",
            )

    @property
    def trajectory(self) -> Path:
        """Where the trajectory grows."""
        return self.path / TRAJECTORY

    @property
    def last_good(self) -> Path:
        """The model at the newest saved state."""
        return self.path / LAST_GOOD

    @property
    def states(self) -> list[Path]:
        """The files that a state may be in."""
        return [self.path / name for name in (STATE, PREVIOUS)]

    @property
    def holds_a_state(self) -> bool:
        """Whether a fit can be resumed from here."""
        return any(path.exists() for path in self.states)

    @takes_units(b_factors="Å²")
    def save(
        self,
        state: RunState,
        topology: app.Topology,
        b_factors: np.ndarray,
        header: Header | None = None,
        beside: HelperProcesses | None = None,
    ) -> None:
        """Write a state, its model and its log, for those who watch; the state before becomes the previous one.

        Parameters
        ----------
        state : RunState
        topology : openmm.app.Topology
        b_factors : np.ndarray, shape (N,)
            In Å².
        header : Header, optional
            Of the model.
        beside : HelperProcesses, optional
            What writes the model, unless an earlier one is being written yet; `finish` waits for the newest.
        """
        try:
            # A state counts frames: they must be on the disk before it is.
            if self.trajectory.exists():
                with open(self.trajectory, "rb+") as file:
                    os.fsync(file.fileno())
            with replacing(self.path / STATE) as temporary:
                with open(temporary, "wb") as file:
                    write_state(file, state)
                    file.flush()
                    os.fsync(file.fileno())
                # One whole file takes another name: nothing is written that could stay behind half written.
                if (self.path / STATE).exists():
                    os.replace(self.path / STATE, self.path / PREVIOUS)
        except OSError as error:
            raise InputError(
                f"the state cannot be written ({error.strerror or error})",
                source=self.path,
                remedy="free some disk space, and resume the fit",
            ) from None
        beside = beside or HelperProcesses()
        lasting, *others = (beside.shared(each) for each in (topology, b_factors, header))
        positions = state.positions * ANGSTROM_PER_NANOMETER
        self._write_newest = partial(beside.begin, write_cif, self.last_good, lasting, positions, *others)
        if not beside.has_processes:
            self.finish()
        elif self._model is None or self._model.is_done:
            self._begin_model()
        if state.rows:
            write_text(self.path / LOG, log_table(state.rows))

    def _begin_model(self) -> None:
        self._model, self._write_newest = self._write_newest(), None

    def finish(self) -> None:
        """Wait until the model of the newest saved state is written."""
        if self._model is not None:
            self._model.result()
        if self._write_newest is not None:
            self._begin_model()
            self._model.result()

    def save_times(self, stopwatch: Stopwatch) -> None:
        """Write what took how long so far, for the process that goes on."""
        written = {
            "stopwatch": stopwatch.identity,
            "seconds_by_part": stopwatch.seconds_by_part,
            "seconds_within": stopwatch.seconds_within,
        }
        write_text(self.path / TIMES, json.dumps(written, indent=2) + "\n")

    def load_times(self, stopwatch: Stopwatch) -> dict[str, float]:
        """Return the seconds by part that a stopwatch did not count, those of an earlier process; none where they are lost."""
        return self._times(stopwatch, "seconds_by_part")

    def load_times_within(self, stopwatch: Stopwatch) -> dict[str, float]:
        """Return the same of what is counted within parts."""
        return self._times(stopwatch, "seconds_within")

    def _times(self, stopwatch: Stopwatch, key: str) -> dict[str, float]:
        with suppress(OSError, ValueError, TypeError, KeyError):  # times are not worth a fit
            written = json.loads((self.path / TIMES).read_text(encoding="utf-8"))
            if written["stopwatch"] != stopwatch.identity:
                seconds = {str(name): float(spent) for name, spent in written[key].items()}
                return seconds if all(0 <= spent < _AGES for spent in seconds.values()) else {}
        return {}

    def load(self) -> RunState:
        """Read the newest state that can be read, and cut the trajectory to its frames.

        Raises
        ------
        InputError
            If there is none.
        """
        problems = []
        for name in (STATE, PREVIOUS):
            try:
                state = read_state(self.path / name)
            except FileNotFoundError:
                continue
            except DamagedState as error:
                problems.append(f"{name} is damaged ({error})")
                continue
            if cut_trajectory(self.trajectory, state.frames, len(state.positions)):
                return state
            problems.append(f"{TRAJECTORY} has fewer than the {state.frames} frames of {name}")
        found = "; ".join(problems) or "it holds no saved state"
        raise InputError(
            f"the fit cannot be resumed, because {found}", source=self.path, remedy="start the fit again"
        )

    def remove(self) -> None:
        """Remove the folder with all its files: by its name at once, so that half of it is never taken for a fit."""
        condemned = _condemned(self.path)
        shutil.rmtree(condemned, ignore_errors=True)
        with suppress(FileNotFoundError):
            os.replace(self.path, condemned)
        shutil.rmtree(condemned, ignore_errors=True)


class TrajectoryFolder(RunFolder):
    """Where a fit that was given no folder keeps its trajectory, and no states, for as long as its result may be written."""

    def __init__(self) -> None:
        super().__init__(tempfile.mkdtemp(prefix="openmm-density-"))
        weakref.finalize(self, _remove_own, self.path, os.getpid())

    def save(self, *_: object) -> None:
        """Save nothing."""


def _remove_own(path: Path, process: int) -> None:
    if os.getpid() == process:  # not one that was forked from it
        shutil.rmtree(path, ignore_errors=True)


def remove_leftovers(path: Path) -> None:
    """Remove what a killed process left of a locked `RunFolder`: files and folders half written, an empty folder whole."""
    shutil.rmtree(_condemned(path), ignore_errors=True)
    remove_abandoned(path)
    with suppress(OSError):
        if {each.name for each in path.iterdir()} <= {LOCK}:
            shutil.rmtree(path)


def _condemned(path: Path) -> Path:
    return path.with_name(f".{path.name}.removed")


class Trajectory:
    """A DCD file that grows and can be continued: `timestep` in ps, steps between frames, and the frames that it holds."""

    def __init__(
        self, path: Path, topology: app.Topology, timestep: float, interval: int, frames: int
    ) -> None:
        self._path, self._frames = path, frames
        self._first, self._interval = interval, interval
        self._is_plain = topology.getPeriodicBoxVectors() is None
        self._file = open(path, "rb+" if frames else "wb+")  # noqa: SIM115  closed by __exit__
        self._dcd = app.DCDFile(
            self._file, topology, timestep, firstStep=interval, interval=interval, append=bool(frames)
        )

    def __enter__(self) -> Trajectory:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # what could not be written by now has been told of
            self._file.close()

    def add(self, positions: np.ndarray, box: np.ndarray | None) -> None:
        """Append a frame: positions (N, 3) and, in a periodic System, box vectors, in nm."""
        try:
            if self._is_plain and self._first + (self._frames + 1) * self._interval < _MOST_STEPS:
                self._append(positions)
            else:
                self._dcd.writeModel(positions, periodicBoxVectors=box)
            self._frames += 1
        except OSError as error:
            raise InputError(
                f"the trajectory cannot be written ({error.strerror or error})",
                source=self._path,
                remedy="free some disk space, and resume the fit",
            ) from None

    def _append(self, positions: np.ndarray) -> None:
        """Write the bytes that `DCDFile.writeModel` does, which takes as long as tens of steps on a GPU."""
        if not np.isfinite(positions).all():
            raise ValueError("a position is no number")
        length = struct.pack("<i", 4 * len(positions))
        columns = (10 * positions.T).astype("<f4")
        for place, value in ((8, self._frames + 1), (20, self._first + self._frames * self._interval)):
            self._file.seek(place)
            self._file.write(struct.pack("<i", value))
        self._file.seek(0, os.SEEK_END)
        self._file.write(b"".join(length + column.tobytes() + length for column in columns))
        self._file.flush()


def cut_trajectory(path: Path, frames: int, atoms: int | None = None) -> bool:
    """Cut a DCD file of OpenMM's to its first frames; tell whether it had so many, each of so many atoms."""
    if frames == 0:
        path.unlink(missing_ok=True)
        return True
    if not path.exists():
        return False
    with open(path, "rb+") as file:
        header = file.read(_HEADER)
        if len(header) < _HEADER:
            return False
        first, interval = struct.unpack_from("<2i", header, 12)
        has_box, n_atoms = struct.unpack_from("<i", header, 48)[0], struct.unpack_from("<i", header, 268)[0]
        if n_atoms <= 0 or n_atoms != (atoms or n_atoms):
            return False
        frame = 3 * (4 * n_atoms + 8) + (56 if has_box else 0)
        length = _HEADER + frames * frame
        if file.seek(0, os.SEEK_END) < length:
            return False
        file.truncate(length)
        for place, value in ((8, frames), (20, first + (frames - 1) * interval)):
            file.seek(place)
            file.write(struct.pack("<i", value))
    return True


# With more the header counts larger steps.
_MOST_STEPS = 1 << 31
# Bytes before the first frame: a block of 84, one of two titles, one of the number of atoms.
_HEADER = 276


# Columns that only some fits have: those with a reference, or with another map.
_OPTIONAL = ("ca_rmsd", "cc_free")


def log_table(rows: Sequence[Row]) -> str:
    """Return rows of a log as CSV, without the columns of what the fit does not have."""
    last = vars(rows[-1])
    names = [name for name, value in last.items() if name not in _OPTIONAL or value is not None]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in vars(row).items()}
        )
    return buffer.getvalue()

"""One fit at a time in a folder."""

from __future__ import annotations

import errno
import os
import re
import socket
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ..base.errors import InputError

LOCK = ".lock"

# What file systems without locks answer, some network ones among them.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
# Seconds: for the moment in which the one who had the folder takes the file away, and between two looks.
_PATIENCE, _INTERVAL = 0.1, 0.02
# Between two while a fit is waited for, and for the system to take back what a killed process held.
_WAITING_INTERVAL, _PATIENCE_WITH_THE_DEAD = 0.3, 15.0
# Of Linux, among the flags of a process: that it is being ended.
_PF_EXITING = 0x4

Waiting = Callable[[str], None]
"""Called again and again while a folder is waited for, with who holds it, as in ``process 12 on host``."""


class FolderInUse(InputError):
    """Another fit is running in a folder. Attributes: `holder` as in ``process 12 on host``; empty where it is not known."""

    def __init__(self, folder: Path, holder: str) -> None:
        self.holder = holder
        super().__init__(
            f"a fit is running in it{f' ({holder})' if holder else ''}",
            source=folder,
            remedy="wait for its end, stop it, or choose another folder",
        )


class FolderLock:
    """Keep a folder for one fit, as a context manager or until `release`.

    The operating system holds the lock for this process, and ends it with the process, however that ends. Until it has ended a
    process that was killed, which takes a moment, that one is waited for. `folder`: made where it does not exist; `waiting`:
    see `Waiting`: another fit that runs in the folder is waited for, in place of an error. Raises FolderInUse if another fit
    is running in the folder; InputError if it cannot be written to, as where a symbolic link leads nowhere.
    """

    def __init__(self, folder: str | os.PathLike[str], waiting: Waiting | None = None) -> None:
        folder = Path(folder)
        _check_links(folder)
        path = folder / LOCK
        lock = _lock(path)
        was_there = os.path.lexists(path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _acquire(lock, path, waiting)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                if not was_there:  # another's stays, which may be held
                    with suppress(OSError):
                        path.unlink(missing_ok=True)
                raise InputError(
                    f"it cannot be written to ({error.strerror or error})",
                    source=folder,
                    remedy="choose a folder in which you can write",
                ) from None
            warnings.warn(
                f"{folder}: its file system has no locks ({error.strerror}): start no second fit in it while this one runs.",
                stacklevel=2,
            )
        self._finalizer = weakref.finalize(self, _release, path, lock)

    def release(self) -> None:
        """Release the folder for others."""
        self._finalizer()

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _check_links(folder: Path) -> None:
    for part in (folder, *folder.parents):
        if part.is_symlink() and not part.exists():
            raise InputError(
                f"it is a symbolic link to {os.readlink(part)}, which leads nowhere",
                source=part,
                remedy="correct it, or choose another folder",
            )


def wait_until_free(folder: str | os.PathLike[str], waiting: Waiting) -> None:
    """Wait for the end of a fit that another process runs in a folder, as one whose series or batch was killed."""
    if os.path.exists(folder):
        FolderLock(folder, waiting).release()


@contextmanager
def held(path: Path, waiting: Waiting | None = None) -> Iterator[None]:
    """Hold a lock file, which stays; wait for who else has it."""
    lock = _lock(path, fallback_to_soft=True)
    _acquire(lock, path, waiting or (lambda _: None))
    try:
        yield
    finally:
        lock.release()


def _lock(path: Path, fallback_to_soft: bool = False) -> FileLock:
    # A name that is a link is refused: whom the folder is from may have made it one to any file of this user's.
    options = {"thread_local": False, "fallback_to_soft": fallback_to_soft, "on_acquired": _name_holder}
    return FileLock(path, timeout=_PATIENCE, poll_interval=_INTERVAL, **options)


def _acquire(lock: FileLock, path: Path, waiting: Waiting | None) -> None:
    """Take a lock as soon as nobody has it, or raise FolderInUse."""
    given_up = time.monotonic() + _PATIENCE_WITH_THE_DEAD
    while True:
        try:
            lock.acquire()
            return
        except Timeout:
            holder = _holder(path)
        if waiting is not None:
            waiting(holder or "another process")
        elif not is_ending(holder) or time.monotonic() > given_up:
            raise FolderInUse(path.parent, holder)
        time.sleep(_WAITING_INTERVAL)


def is_ending(holder: str) -> bool:
    """Return whether a holder is a process of this machine that has ended, or is being ended."""
    found = re.fullmatch(r"process (\d+) on (.+)", holder)
    if found is None or found[2] != socket.gethostname():
        return False
    process = int(found[1])
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # another user's
        return False
    try:
        # Behind the name, which may hold anything: the state, and six numbers later the flags.
        fields = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0] in "ZX" or bool(int(fields[6]) & _PF_EXITING)
    except (OSError, ValueError, IndexError):  # it has ended meanwhile, or this is not Linux
        return False


def _name_holder(descriptor: int) -> None:
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)


def _holder(path: Path) -> str:
    with suppress(OSError):
        return path.read_bytes()[:200].decode(errors="replace")
    return ""


def _release(path: Path, lock: FileLock) -> None:
    # While the lock is held, nobody else can have the file: a name taken away now is this one's.
    with suppress(OSError):  # a folder that can no longer be written to
        path.unlink(missing_ok=True)
    lock.release()

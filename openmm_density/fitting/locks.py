"""One fit at a time in a folder."""

from __future__ import annotations

import errno
import os
import socket
import warnings
import weakref
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import InputError

LOCK = ".lock"

# What file systems without locks answer, some network ones among them.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
# For the moment in which the one who had the folder takes the file away.
_PATIENCE, _INTERVAL = 0.1, 0.02


class FolderLock:
    """Keep a folder for one fit, as a context manager or until `release`.

    The operating system holds the lock for this process, and ends it with the process, however that ends.

    Parameters
    ----------
    folder : path
        Made where it does not exist.

    Raises
    ------
    InputError
        If another fit is running in the folder, or it cannot be written to, as where a symbolic link leads nowhere.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        folder = Path(folder)
        _check_links(folder)
        path = folder / LOCK
        # A name that is a link is refused: whom the folder is from may have made it one to any file of this user's.
        lock = FileLock(
            path,
            timeout=_PATIENCE,
            poll_interval=_INTERVAL,
            thread_local=False,
            fallback_to_soft=False,
            on_acquired=_name_holder,
        )
        was_there = os.path.lexists(path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            holder = _holder(path)
            raise InputError(
                f"a fit is running in it{f' ({holder})' if holder else ''}",
                source=folder,
                remedy="wait for its end, stop it, or choose another folder",
            ) from None
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

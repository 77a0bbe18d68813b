"""One fit at a time in a folder."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import warnings
import weakref
from pathlib import Path

from ..errors import InputError

LOCK = ".lock"

# What file systems without locks answer, some network ones among them.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class FolderLock:
    """Keep a folder for one fit, as a context manager or until `release`.

    The kernel holds the lock for this process, and lets go of it when the process ends, however it ends.

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
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = _locked(folder)
        except OSError as error:
            raise InputError(f"{folder} cannot be written to: {error.strerror or error}.") from None
        self._finalizer = weakref.finalize(self, _release, folder / LOCK, descriptor)

    def release(self) -> None:
        """Let others have the folder."""
        self._finalizer()

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _check_links(folder: Path) -> None:
    for part in (folder, *folder.parents):
        if part.is_symlink() and not part.exists():
            raise InputError(
                f"{part} is a symbolic link to {os.readlink(part)}, which leads nowhere: mend it, or choose another folder."
            )


def _locked(folder: Path) -> int:
    """Return the descriptor of the folder's lock file, which holds the lock as long as it is open."""
    path = folder / LOCK
    while True:
        # Whom the folder is from may have made that name a link to any file of this user's.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between opening and locking, the one who had it may have taken the file away.
            if os.fstat(descriptor).st_nlink == 0:
                os.close(descriptor)
                continue
            os.truncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
            return descriptor
        except BlockingIOError:
            holder = os.read(descriptor, 200).decode(errors="replace")
            os.close(descriptor)
            raise InputError(
                f"{folder}: a fit is running in it{f' ({holder})' if holder else ''}: wait for its end, stop it, or choose "
                "another folder."
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(descriptor)
                path.unlink(missing_ok=True)
                raise
            warnings.warn(
                f"{folder}: its file system has no locks ({error.strerror}): start no second fit in it while this one runs.",
                stacklevel=4,
            )
            return descriptor


def _release(path: Path, descriptor: int) -> None:
    # While the lock is held, nobody else can have the file: a name taken away now is this one's.
    try:
        path.unlink(missing_ok=True)
    except OSError:  # a folder that can no longer be written to
        pass
    finally:
        os.close(descriptor)

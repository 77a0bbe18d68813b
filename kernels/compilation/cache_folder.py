"""The folder of compiled libraries, closed to others: the process loads what it contains."""

from __future__ import annotations

import functools
import grp
import os
import pwd
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

# Used if the environment names no other.
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
_FOR_THIS_USER = 0o700


class UnsafeFileError(PermissionError):
    """A file that somebody else could have written, for the reason in the message."""


def wanted_folder() -> Path:
    """Return the cache folder that the environment asks for, whether it exists or not."""
    given = os.environ.get("OPENMM_DENSITY_CACHE")
    if given:
        return Path(given).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(shared):
        return Path(shared) / "openmm-density"
    return Path(os.path.expanduser("~")).absolute() / ".cache" / "openmm-density"


def usable_folder() -> tuple[Path, str | None]:
    """Return the folder to use, and why it is not the one that the environment asks for.

    Nothing is created. Links are resolved, so that the checked folder is the one used. Returns `folder`: the folder that is
    asked for, if only this user, root, or the installer of this package can write there; else this user's temporary one,
    which may not exist. `problem`: who else could write in the first.
    """
    wanted = wanted_folder()
    problem = danger(wanted)
    if problem is None:
        return Path(os.path.realpath(wanted)), None
    safe = (folder for folder in _temporary_folders() if danger(folder) is None)
    return next(safe, _temporary_folders()[0]), problem


def make(folder: Path) -> bool:
    """Create a folder and those above it for this user alone; return whether it can be written to and is safe."""
    missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    try:
        for place in reversed(missing):
            with suppress(FileExistsError):
                os.mkdir(place, _FOR_THIS_USER)
        with tempfile.TemporaryFile(dir=folder):
            # Anybody can create a name in /tmp, even after a check.
            return danger(folder) is None
    except OSError:
        return False


def make_temporary() -> Path:
    """Create a folder for this user below the system's temporary one; later processes use it too, if it stays."""
    for folder in _temporary_folders():
        if danger(folder) is None and make(folder):
            return folder
    for folder in _temporary_folders():
        with suppress(OSError):
            made = Path(os.path.realpath(tempfile.mkdtemp(prefix="openmm-density-", dir=folder.parent)))
            if danger(made) is None:
                return made
            made.rmdir()
    raise UnsafeFileError(f"others can write in every temporary folder, such as {tempfile.gettempdir()}")


def danger(folder: Path) -> str | None:
    """Return why somebody else could replace files in a folder, as in ``/scratch belongs to nina``; None where nobody can.

    The folder and all above it must belong to this user, to root, or to the installer of this package, and nobody else may write
    in it; in those above it, others may where the sticky bit keeps them from renaming others' files.
    """
    real = Path(os.path.realpath(folder))
    for place in (real, *real.parents):
        try:
            found = os.stat(place)
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{place} cannot be examined ({error.strerror})"
        if not (_is_trusted(found.st_uid) or (place != real and found.st_uid == _unmapped_owner())):
            return f"{place} belongs to {_user(found.st_uid)}"
        if place != real and found.st_mode & stat.S_ISVTX:
            continue
        if (who := _other_writers(found)) is not None:
            return f"{place} can be written to by {who}"
    return None


def read_own(path: Path) -> bytes:
    """Read a file that nobody else could have written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UnsafeFileError(f"{path} is no file")
        if not _is_trusted(found.st_uid):
            raise UnsafeFileError(f"{path} belongs to {_user(found.st_uid)}")
        if (who := _other_writers(found)) is not None:
            raise UnsafeFileError(f"{path} can be written to by {who}")
        return file.read()


def keep_from_others(path: Path) -> None:
    """Revoke others' permission to write to our file, which the umask may have granted."""
    os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~0o022)


def _temporary_folders() -> list[Path]:
    name = f"openmm-density-{os.geteuid()}"
    places = dict.fromkeys(os.path.realpath(place) for place in (tempfile.gettempdir(), *_TEMPORARY))
    return [Path(place) / name for place in places]


def _is_trusted(owner: int) -> bool:
    # The installer of this package has code run in any case.
    return owner in (os.geteuid(), 0, _installer())


@functools.cache
def _installer() -> int:
    return os.stat(__file__).st_uid


def _other_writers(found: os.stat_result) -> str | None:
    if found.st_mode & stat.S_IWOTH:
        return "everybody"
    if found.st_mode & stat.S_IWGRP and not _is_private_group(found.st_gid):
        return f"the group {_group(found.st_gid)}"
    return None


def _is_private_group(number: int) -> bool:
    """Return whether a group belongs to one user only, as on many systems, where folders are writable by groups."""
    with suppress(KeyError):
        group, user = grp.getgrgid(number), pwd.getpwuid(os.geteuid())
        return user.pw_gid == number and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    return False


@functools.cache
def _unmapped_owner() -> int | None:
    """Return the owner id of folders whose owners, root included, this user's container cannot name."""
    with suppress(OSError, ValueError):
        mapped = sum(int(line.split()[2]) for line in Path("/proc/self/uid_map").read_text().splitlines())
        if mapped < 2**32 - 1:
            return int(Path("/proc/sys/kernel/overflowuid").read_text())
    return None


def _user(number: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(number).pw_name
    return f"user {number}"


def _group(number: int) -> str:
    with suppress(KeyError):
        return grp.getgrgid(number).gr_name
    return str(number)

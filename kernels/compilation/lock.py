"""One process compiles, the others wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

_SECONDS = 900.0


@contextmanager
def build_lock(path: Path, seconds: float = _SECONDS) -> Iterator[bool | None]:
    """Hold the lock of a build, and say whether it is held.

    The operating system keeps such a lock for one holder, also among threads, and ends it with its process, however that ends.
    Not holding it (a file system without locks, a builder that is stopped for good) costs a second compilation and nothing
    else: every build has a folder of its own, from which its results are moved into place.

    Yields
    ------
    bool or None
        True if it is held, False if somebody else holds it, None if the file system has no locks.
    """
    lock = FileLock(path, timeout=seconds, thread_local=False, fallback_to_soft=False)
    held: bool | None = False
    try:
        lock.acquire()
        held = True
    except Timeout:
        pass
    except OSError:
        held = None
    try:
        yield held
    finally:
        lock.release()

"""One fit at a time in a folder, whatever becomes of the one before."""

import errno
import fcntl
import os
import subprocess
import sys

import pytest

from openmm_density.base.errors import InputError
from openmm_density.fitting.locks import LOCK, FolderLock, wait_until_free

HOLD = """
import sys, time
from openmm_density.fitting.locks import FolderLock
lock = FolderLock(sys.argv[1])
print("locked", flush=True)
time.sleep(600)
"""


def test_a_second_fit_is_refused_until_the_first_lets_go(tmp_path):
    folder = tmp_path / "made" / "run"
    first = FolderLock(folder)
    with pytest.raises(
        InputError, match=rf"run: a fit is running in it \(process {os.getpid()} on .*\): wait"
    ):
        FolderLock(folder)
    FolderLock(tmp_path / "other").release()
    first.release()
    first.release()
    assert list(folder.iterdir()) == []
    with FolderLock(folder):
        assert (folder / LOCK).exists()
    assert list(folder.iterdir()) == []


def test_a_process_that_is_killed_lets_go(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(InputError, match=f"process {holder.pid} on"):
            FolderLock(tmp_path)
    finally:
        holder.kill()
        holder.communicate()
    assert (tmp_path / LOCK).exists()
    FolderLock(tmp_path).release()
    assert not (tmp_path / LOCK).exists()


def test_a_file_system_without_locks_serves_with_a_warning(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.warns(UserWarning, match=r"has no locks \(No locks available\): start no second fit"):
        lock = FolderLock(tmp_path)
    lock.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "call", "number"), [(fcntl, "flock", errno.EIO), (os, "pwrite", errno.ENOSPC)]
)
def test_a_folder_that_cannot_be_locked_keeps_no_file_of_ours(tmp_path, monkeypatch, module, call, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(module, call, refuse)
        with pytest.raises(InputError, match=rf"cannot be written to \({os.strerror(number)}\): choose"):
            FolderLock(tmp_path)
        assert list(tmp_path.iterdir()) == []
        (tmp_path / LOCK).write_text("another's")
        with pytest.raises(InputError, match="cannot be written to"):
            FolderLock(tmp_path)
    assert (tmp_path / LOCK).exists()
    FolderLock(tmp_path).release()


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_folder_that_takes_no_file_is_told_of(tmp_path, monkeypatch, number):
    def refuse(path, *_, **__):
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InputError, match=rf"cannot be written to \({os.strerror(number)}\): choose"):
        FolderLock(tmp_path)


def test_a_fit_in_a_folder_is_waited_for_by_who_asks_for_it(tmp_path):
    first, heard = FolderLock(tmp_path), []

    def waiting(holder):
        heard.append(holder)
        first.release()

    wait_until_free(tmp_path, waiting)
    assert heard and heard[0].startswith(f"process {os.getpid()} on ")
    FolderLock(tmp_path).release()
    wait_until_free(tmp_path / "none", waiting)
    assert not (tmp_path / "none").exists()

"""Files that appear whole or not at all, and what a process that is killed while it writes one leaves."""

import os
import signal
import subprocess
import sys
import uuid

import pytest

from openmm_density.base import atomic_files
from openmm_density.base.atomic_files import atomic_write, remove_abandoned, write_text
from openmm_density.base.errors import InputError

WRITER = """
import sys, time
from openmm_density.base.atomic_files import atomic_write
with atomic_write(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print("writing", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def writer(tmp_path):
    """A process that is writing a file."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "file")], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"writing\n"
    yield process
    process.kill()
    process.communicate()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_process_was_writing_goes_and_what_a_living_one_writes_stays(
    tmp_path, writer, monkeypatch
):
    (half,) = names(tmp_path)
    own = {f".{uuid.uuid4().hex}.tmp.txt", "notes.tmp", f"{uuid.uuid4().hex}.tmp", ".short.tmp"}
    for name in own:
        (tmp_path / name).write_text("the user's")
    folder = f".{uuid.uuid4().hex}.tmp"
    (tmp_path / folder).mkdir()
    link = f".{uuid.uuid4().hex}.tmp"
    (tmp_path / link).symlink_to(tmp_path / "notes.tmp")
    remove_abandoned(tmp_path)
    assert set(names(tmp_path)) == {*own, folder, link, half}
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    # Whoever writes there next looks first, once.
    monkeypatch.setattr(atomic_files, "_looked_through", set())
    write_text(tmp_path / "file", "whole")
    assert set(names(tmp_path)) == {*own, folder, link, "file"}
    assert (tmp_path / "file").read_text() == "whole" and (tmp_path / "notes.tmp").read_text() == "the user's"


def test_without_locks_only_what_is_old_is_abandoned(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(atomic_files.fcntl, "flock", none)
    old, new = (tmp_path / f".{uuid.uuid4().hex}.tmp" for _ in range(2))
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    remove_abandoned(tmp_path)
    assert names(tmp_path) == [new.name]
    write_text(tmp_path / "file", "whole")
    assert (tmp_path / "file").read_text() == "whole"


def test_what_fails_leaves_what_was_there_and_nothing_else(tmp_path):
    write_text(tmp_path / "file", "before")
    with pytest.raises(KeyError), atomic_write(tmp_path / "file") as temporary:
        temporary.write_text("half")
        raise KeyError
    with pytest.raises(InputError, match="it cannot be written"), atomic_write(tmp_path / "file"):
        raise OSError(28, "No space left on device")
    assert names(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "before"
    with pytest.raises(InputError, match=r"file: it cannot be written \(No such file or directory\)"):
        write_text(tmp_path / "nowhere" / "file", "text")


def test_files_have_the_rights_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640

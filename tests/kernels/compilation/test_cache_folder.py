"""Whose folders and files are those from which code is loaded."""

import os
import stat
from types import SimpleNamespace

import pytest

from openmm_density.kernels.compilation import cache_folder as cache

SOMEBODY = 54321


@pytest.fixture
def pretend(monkeypatch):
    """Return a function that gives a path another owner, mode or group, as far as this process can see."""
    changed = {}
    given_stat, given_fstat = os.stat, os.fstat

    def altered(found, path):
        wanted = changed.get(os.path.realpath(path))
        if wanted is None:
            return found
        values = {name: getattr(found, name) for name in ("st_mode", "st_uid", "st_gid")}
        return SimpleNamespace(**values | wanted)

    monkeypatch.setattr(os, "stat", lambda path, **how: altered(given_stat(path, **how), path))
    monkeypatch.setattr(os, "fstat", lambda number: altered(given_fstat(number), f"/proc/self/fd/{number}"))
    return lambda path, **wanted: changed.update({os.path.realpath(path): wanted})


def test_the_wanted_folder_is_as_the_desktop_standard_has_it(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OPENMM_DENSITY_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.wanted_folder() == tmp_path / "home" / ".cache" / "openmm-density"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    assert cache.wanted_folder() == tmp_path / "shared" / "openmm-density"
    monkeypatch.setenv("OPENMM_DENSITY_CACHE", "~/kernels")
    assert cache.wanted_folder() == tmp_path / "home" / "kernels"


def test_folders_and_those_above_them_are_nobody_elses(tmp_path, pretend):
    folder = tmp_path / "above" / "cache"
    assert cache.danger(folder) is None, "it need not exist"
    assert cache.make(folder)
    for place in (folder, folder.parent):
        for wanted, said in (
            ({"st_uid": SOMEBODY}, f"{place} belongs to user {SOMEBODY}"),
            ({"st_mode": stat.S_IFDIR | 0o777}, f"{place} can be written to by everybody"),
            (
                {"st_mode": stat.S_IFDIR | 0o770, "st_gid": SOMEBODY},
                f"{place} can be written to by the group {SOMEBODY}",
            ),
        ):
            pretend(place, **wanted)
            assert cache.danger(folder) == said
            assert not cache.make(folder)
        # Root may: whoever installs software for all does it so.
        pretend(place, st_uid=0)
        assert cache.danger(folder) is None
        pretend(place)
    pretend(folder.parent, st_mode=stat.S_IFDIR | stat.S_ISVTX | 0o777)
    assert cache.danger(folder) is None, "as /tmp is"
    pretend(folder, st_mode=stat.S_IFDIR | stat.S_ISVTX | 0o777)
    assert cache.danger(folder) == f"{folder} can be written to by everybody"


def test_links_to_folders_count_as_what_they_lead_to(tmp_path, pretend, monkeypatch):
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir(mode=0o700)
    link.symlink_to(real)
    monkeypatch.setenv("OPENMM_DENSITY_CACHE", str(link))
    assert cache.usable_folder() == (real, None)
    pretend(real, st_uid=SOMEBODY)
    folder, problem = cache.usable_folder()
    assert folder.name == f"openmm-density-{os.geteuid()}" and problem == f"{real} belongs to user {SOMEBODY}"


def test_files_are_read_if_nobody_else_could_have_written_them(tmp_path, pretend):
    path = tmp_path / "library.so"
    path.write_bytes(b"code")
    path.chmod(0o755)
    assert cache.read_own(path) == b"code"
    for wanted, said in (
        ({"st_uid": SOMEBODY}, f"belongs to user {SOMEBODY}"),
        ({"st_mode": stat.S_IFREG | 0o757}, "by everybody"),
        ({"st_mode": stat.S_IFREG | 0o775, "st_gid": SOMEBODY}, f"by the group {SOMEBODY}"),
    ):
        pretend(path, **wanted)
        with pytest.raises(cache.UnsafeFileError, match=said):
            cache.read_own(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(cache.UnsafeFileError, match="is no file"):
        cache.read_own(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="link"):
        cache.read_own(tmp_path / "link")

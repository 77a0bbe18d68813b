"""Libraries in the cache are found, compiled anew where they are not as they were compiled, and nobody else's."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat

import pytest

from ..children import Child
from .compilers import calls, copying_compiler, load, loaded_here


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "record lost", "record empty"])
def test_a_damaged_library_is_compiled_again(compiled, tmp_path, damage):
    cache = tmp_path / "cache"
    compiler = copying_compiler(tmp_path / "compiler", compiled["library"])
    library = load("neighbors", cache=cache, CXX=compiler)["library"]
    whole = library.read_bytes()
    if damage == "truncated":
        library.write_bytes(whole[: len(whole) // 2])
    elif damage == "overwritten":
        library.write_bytes(whole[:2000] + bytes(1000) + whole[3000:])
    elif damage == "record lost":
        library.with_suffix(".json").unlink()
    else:
        library.with_suffix(".json").write_text("")
    report = load("neighbors", cache=cache, CXX=compiler)
    assert report["loaded"] == [True]
    assert report["warnings"] == []
    assert library.read_bytes() == whole
    assert len(calls(compiler)) == 2


def planted(cache, compiler, library):
    """Put a library and its record into a cache as somebody else would, who can compute its name; return it."""
    whole = load("neighbors", cache=cache, CXX=compiler)["library"]
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    record = json.loads(whole.with_suffix(".json").read_text()) | {"sha256": digest}
    whole.with_suffix(".json").write_text(json.dumps(record))
    whole.write_bytes(library.read_bytes())
    return whole


# The owner is somebody whom no machine has; whoever is not root cannot give a file away, and opens what it owns to all.
SOMEBODY = 54321


def expose(path):
    if os.geteuid() == 0:
        os.chown(path, SOMEBODY, -1)
    else:
        path.chmod(path.stat().st_mode | 0o022)


@pytest.mark.parametrize("how", ["folder open to all", "folder of somebody", "folder above open to all"])
def test_a_planted_library_is_not_loaded_from_a_folder_of_others(compiled, tmp_path, how):
    cache, temporary = tmp_path / "shared" / "cache", tmp_path / "tmp"
    temporary.mkdir()
    compiler = copying_compiler(tmp_path / "compiler", compiled["library"])
    evil = planted(cache, compiler, compiled["library"])
    if how == "folder of somebody":
        expose(cache)
    else:
        (cache if "above" not in how else cache.parent).chmod(0o777)
    for _ in range(2):
        report = load("neighbors", cache=cache, CXX=compiler, TMPDIR=temporary)
        assert report["loaded"] == [True]
        assert report["library"].parent == temporary / f"openmm-density-{os.geteuid()}" != evil.parent
        assert stat.S_IMODE(report["library"].parent.stat().st_mode) == 0o700
        (message,) = report["warnings"]
        assert f"does not use its cache folder {cache}" in message and "OPENMM_DENSITY_CACHE" in message
        assert "can be written to by everybody" in message or "belongs to user 54321" in message
        assert str(report["library"].parent) in message
    assert len(calls(compiler)) == 2
    # Nor from a temporary one in which others can write.
    report["library"].parent.chmod(0o777)
    again = load("neighbors", cache=cache, CXX=compiler, TMPDIR=temporary)
    assert again["loaded"] == [True] and again["library"].parent != report["library"].parent
    shutil.rmtree(again["library"].parent)


@pytest.mark.parametrize("what", ["library of somebody", "record of somebody", "library open to all", "link"])
def test_a_planted_library_is_compiled_anew_in_a_folder_of_ones_own(compiled, tmp_path, what):
    cache = tmp_path / "cache"
    compiler = copying_compiler(tmp_path / "compiler", compiled["library"])
    evil = planted(cache, compiler, compiled["library"])
    if what == "library open to all":
        evil.chmod(0o777)
    elif what == "link":
        evil.rename(tmp_path / "elsewhere.so")
        evil.symlink_to(tmp_path / "elsewhere.so")
    else:
        expose(evil if "library" in what else evil.with_suffix(".json"))
    report = load("neighbors", cache=cache, CXX=compiler)
    assert report["loaded"] == [True] and report["library"] == evil
    assert len(calls(compiler)) == 2
    for path in (evil, evil.with_suffix(".json")):
        assert path.lstat().st_uid == os.geteuid() and not path.is_symlink()
        assert not path.stat().st_mode & 0o022


def loaded_with_all_rights():
    os.umask(0)
    return loaded_here("neighbors")


def test_what_is_made_is_for_this_user_alone_whatever_the_umask(compiled, tmp_path):
    compiler = copying_compiler(tmp_path / "compiler", compiled["library"])
    cache = tmp_path / "new" / "cache"
    library = Child(loaded_with_all_rights, cache=cache, CXX=compiler).result()["library"]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (cache, cache.parent)] == [0o700, 0o700]
    assert not any(path.stat().st_mode & 0o022 for path in (library, library.with_suffix(".json")))

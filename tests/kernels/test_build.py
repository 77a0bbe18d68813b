from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import platform
import pty
import shlex
import shutil
import signal
import stat
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from openmm_density.kernels import build
from openmm_density.kernels.scatter import structured_gather, structured_scatter_add

from .children import Child

REAL_COMPILER = shutil.which("g++")

needs_compiler = pytest.mark.skipif(REAL_COMPILER is None, reason="g++ is not installed")


def loaded_here(*folders):
    """Load in this process, and tell all there is to tell about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = [build.load(folder) for folder in folders]
    status = build.status()["scatter"]
    return {
        "loaded": loaded,
        "warnings": [str(warning.message) for warning in caught],
        "cache": status.cache,
        "library": status.library,
        "flags": status.flags,
        "error": status.error,
        "error_text": build.error_text("scatter"),
    }


def load(*folders, **variables):
    return Child(loaded_here, *folders, **variables).result()


def written_script(path, text):
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


def compiler_script(path, compile_commands):
    """Write a compiler that answers --version and keeps a list of its compilations beside itself."""
    return written_script(
        path,
        f"""case "$*" in --version) echo "g++ (a script) 1"; exit 0;; esac
echo "$*" >> {shlex.quote(str(path))}.calls
{compile_commands}
""",
    )


def calls(compiler):
    log = Path(f"{compiler}.calls")
    return log.read_text().splitlines() if log.exists() else []


COPY = """
copy_to_output() {
    while [ $# -gt 0 ]; do
        if [ "$1" = -o ]; then cp "$LIBRARY" "$2"; fi
        shift
    done
}
"""


def copying_compiler(path, library, first=""):
    """Write a compiler that takes no time: it hands out a library compiled before."""
    return compiler_script(path, f'{COPY}\nLIBRARY={shlex.quote(str(library))}\n{first}\ncopy_to_output "$@"')


def leftovers(cache):
    return sorted(path.name for path in Path(cache).iterdir() if path.suffix not in (".so", ".json", ".lock"))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compile in eight processes that all start on an empty cache; what they get was compiled for real before."""
    if REAL_COMPILER is None:
        pytest.skip("g++ is not installed")
    assert build.load("scatter"), build.error_text("scatter")
    folder = tmp_path_factory.mktemp("compiled")
    cache = folder / "cache"
    compiler = copying_compiler(folder / "compiler", build.status()["scatter"].library, "sleep 0.5")
    processes = [Child(loaded_here, "scatter", cache=cache, CXX=compiler) for _ in range(8)]
    reports = [process.result() for process in processes]
    return {"cache": cache, "compiler": compiler, "reports": reports, "library": reports[0]["library"]}


def test_eight_processes_on_an_empty_cache_compile_once(compiled):
    assert [report["loaded"] for report in compiled["reports"]] == [[True]] * 8
    assert [report["warnings"] for report in compiled["reports"]] == [[]] * 8
    assert len(calls(compiled["compiler"])) == 1
    assert {report["library"] for report in compiled["reports"]} == {compiled["library"]}
    assert leftovers(compiled["cache"]) == []


def test_a_later_process_compiles_nothing(compiled):
    report = load("scatter", cache=compiled["cache"], CXX=compiled["compiler"])
    assert report["loaded"] == [True]
    assert report["error"] is None
    assert report["error_text"] == ""
    assert len(calls(compiled["compiler"])) == 1


def test_a_machine_without_a_compiler_uses_what_was_compiled_before(compiled, tmp_path):
    report = load("scatter", cache=compiled["cache"], PATH=tmp_path)
    assert report["loaded"] == [True]
    assert report["warnings"] == []


def loaded_by_eight_threads():
    with contextlib.redirect_stderr(io.StringIO()) as printed, ThreadPoolExecutor(8) as pool:
        return list(pool.map(build.load, ["scatter"] * 8)), printed.getvalue()


def test_threads_of_one_process_compile_once(compiled, tmp_path):
    compiler = copying_compiler(tmp_path / "compiler", compiled["library"], "sleep 0.3")
    loaded, printed = Child(loaded_by_eight_threads, cache=tmp_path / "cache", CXX=compiler).result()
    assert loaded == [True] * 8
    assert len(calls(compiler)) == 1
    assert printed == "", "nothing is said where nobody watches"


def test_a_terminal_is_told_once_that_it_takes_a_while(compiled, tmp_path):
    compiler = copying_compiler(tmp_path / "compiler", compiled["library"])
    shown = []
    for _ in range(2):
        ours, theirs = pty.openpty()
        load("scatter", cache=tmp_path / "cache", CXX=compiler, terminal=os.ttyname(theirs))
        os.write(theirs, b"end\n")
        text = b""
        while b"end" not in text:
            text += os.read(ours, 10_000)
        shown.append(text.decode().splitlines())
        os.close(theirs)
        os.close(ours)
    assert len(shown[0]) == 2
    assert shown[0][0].startswith("openmm-density: compiling the scatter kernel for this processor, once")
    assert shown[1] == ["end"]


def test_a_killed_builder_and_its_orphaned_compiler_block_nobody(compiled, tmp_path):
    cache = tmp_path / "cache"
    # The first compilation writes part of its output and hangs; it outlives its killed parent.
    slow = f"""
if [ ! -e {tmp_path}/started ]; then
    echo $$ > {tmp_path}/pid
    while [ $# -gt 0 ]; do
        if [ "$1" = -o ]; then head -c 5000 "$LIBRARY" > "$2"; fi
        shift
    done
    mv {tmp_path}/pid {tmp_path}/started
    exec sleep 120
fi
"""
    compiler = copying_compiler(tmp_path / "compiler", compiled["library"], slow)
    builder = Child(loaded_here, "scatter", cache=cache, CXX=compiler)
    deadline = time.monotonic() + 60
    while not (tmp_path / "started").exists():
        assert builder.process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    orphan = int((tmp_path / "started").read_text())
    waiting = Child(loaded_here, "scatter", cache=cache, CXX=compiler)
    assert len(leftovers(cache)) == 1
    foreign = cache / "density-0123-4567.build-abcd"
    foreign.mkdir()
    (foreign / "density.so").write_bytes(b"part of a library")

    builder.process.kill()
    builder.process.join()
    try:
        report = waiting.result()
        os.kill(orphan, 0)
    finally:
        os.kill(orphan, signal.SIGKILL)
    assert report["loaded"] == [True]
    assert report["warnings"] == []
    assert len(calls(compiler)) == 2
    assert leftovers(cache) == []


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "record lost", "record empty"])
def test_a_damaged_library_is_compiled_again(compiled, tmp_path, damage):
    cache = tmp_path / "cache"
    compiler = copying_compiler(tmp_path / "compiler", compiled["library"])
    library = load("scatter", cache=cache, CXX=compiler)["library"]
    whole = library.read_bytes()
    if damage == "truncated":
        library.write_bytes(whole[: len(whole) // 2])
    elif damage == "overwritten":
        library.write_bytes(whole[:2000] + bytes(1000) + whole[3000:])
    elif damage == "record lost":
        library.with_suffix(".json").unlink()
    else:
        library.with_suffix(".json").write_text("")
    report = load("scatter", cache=cache, CXX=compiler)
    assert report["loaded"] == [True]
    assert report["warnings"] == []
    assert library.read_bytes() == whole
    assert len(calls(compiler)) == 2


def test_a_library_that_does_not_load_is_compiled_again_and_then_reported(compiled, tmp_path):
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    compiler = copying_compiler(tmp_path / "compiler", broken)
    report = load("scatter", cache=tmp_path / "cache", CXX=compiler)
    assert report["loaded"] == [False]
    assert "cannot be stored or loaded" in report["error"]
    assert len(calls(compiler)) == 2
    broken.write_bytes(compiled["library"].read_bytes())
    assert load("scatter", cache=tmp_path / "cache", CXX=compiler)["loaded"] == [True]


def scattered_and_loaded():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        density = structured_scatter_add(
            torch.ones(1, 2, 2, 2), torch.tensor([[0, 1]]), torch.tensor([[[0, 1], [2, 3]]]), 6
        )
        report = loaded_here("scatter", "density", "planarity")
    return density.tolist(), report, [str(warning.message) for warning in caught]


def test_without_a_compiler_pytorch_serves_after_one_warning(tmp_path):
    density, report, messages = Child(
        scattered_and_loaded, cache=tmp_path / "cache", CXX="/nonexistent"
    ).result()
    assert density == [1, 2, 2, 2, 1, 0]
    assert report["loaded"] == [False, False, False]
    assert report["warnings"] == []
    assert report["error_text"].startswith("CXX names /nonexistent")
    (message,) = messages
    for part in ("/nonexistent", "PyTorch", "slower", "apt-get install g++", "error_text('scatter')"):
        assert part in message
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("variable", ["CXX", "OPENMM_DENSITY_CXXFLAGS"])
def test_an_unbalanced_quote_is_said_of_its_variable(tmp_path, variable):
    named = {"CXX": REAL_COMPILER} | {variable: "g++ '-O2"}
    density, report, messages = Child(scattered_and_loaded, cache=tmp_path / "cache", **named).result()
    assert density == [1, 2, 2, 2, 1, 0]
    assert report["loaded"] == [False, False, False]
    assert len(messages) == 1
    assert report["error_text"].startswith(
        f"{variable}=g++ '-O2 cannot be split into words (no closing quotation)"
    )


@needs_compiler
def test_the_compilers_own_words_are_kept(tmp_path):
    report = load(
        "scatter", cache=tmp_path, CXX=REAL_COMPILER, OPENMM_DENSITY_CXXFLAGS="-march=no-such-processor"
    )
    assert report["loaded"] == [False]
    assert report["error"] == f"{REAL_COMPILER} does not compile the scatter kernel"
    assert f"$ {REAL_COMPILER} -O3" in report["error_text"]
    assert "no-such-processor" in report["error_text"].split("cpu.cpp", 1)[1]
    assert len(report["warnings"]) == 1
    assert leftovers(tmp_path) == []
    assert list(tmp_path.glob("*.so")) == []


def test_an_error_in_the_source_is_not_tried_again_with_other_flags(tmp_path):
    complaint = f"{build.KERNELS}/scatter/cpu.cpp:12:3: error: expected something else"
    compiler = compiler_script(tmp_path / "compiler", f"echo '{complaint}' >&2; exit 1")
    report = load("scatter", cache=tmp_path / "cache", CXX=compiler)
    assert report["loaded"] == [False]
    assert complaint in report["error_text"]
    assert len(calls(compiler)) == 1


def test_a_compiler_without_openmp_or_native_code_is_asked_for_less(compiled, tmp_path):
    refuse = 'case "$*" in *{0}*) echo "unrecognized option {0}"; exit 1;; esac'
    compiler = copying_compiler(tmp_path / "one", compiled["library"], refuse.format("-fopenmp"))
    report = load("scatter", cache=tmp_path / "cache", CXX=compiler)
    assert report["loaded"] == [True]
    assert report["flags"] == ("-march=native",)
    assert report["warnings"] == []

    compiler = copying_compiler(tmp_path / "two", compiled["library"], refuse.format("-march"))
    report = load("scatter", cache=tmp_path / "cache", CXX=compiler)
    assert report["loaded"] == [True]
    assert report["flags"] == ("-fopenmp",)
    (message,) = report["warnings"]
    assert "-march=native" in message
    assert "slower" in message


def loaded_on_another_processor():
    build._processor = lambda: "another"
    return loaded_here("scatter")


def test_other_flags_compilers_and_processors_have_libraries_of_their_own(compiled, tmp_path):
    cache = tmp_path / "cache"
    one = copying_compiler(tmp_path / "one", compiled["library"])
    two = copying_compiler(tmp_path / "two", compiled["library"])
    libraries = {
        load("scatter", cache=cache, CXX=one)["library"],
        load("scatter", cache=cache, CXX=two)["library"],
        load("scatter", cache=cache, CXX=one, OPENMM_DENSITY_CXXFLAGS="-O1")["library"],
        Child(loaded_on_another_processor, cache=cache, CXX=one).result()["library"],
    }
    assert len(libraries) == 4
    assert "-O1" in calls(one)[1]
    assert "-march=native" not in calls(one)[1]


def test_an_unwritable_cache_gives_way_to_a_temporary_folder_of_this_user(compiled, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    compiler = copying_compiler(tmp_path / "compiler", compiled["library"])
    settings = {"cache": tmp_path / "file" / "cache", "CXX": compiler, "TMPDIR": temporary}
    for _ in range(2):
        report = load("scatter", **settings)
        assert report["loaded"] == [True]
        assert report["cache"] == temporary / f"openmm-density-{os.getuid()}"
        (message,) = report["warnings"]
        assert "OPENMM_DENSITY_CACHE" in message
        assert str(tmp_path / "file" / "cache") in message
    assert len(calls(compiler)) == 1


def planted(cache, compiler, library):
    """Put a library and its record into a cache as somebody else would, who can compute its name; return it."""
    whole = load("scatter", cache=cache, CXX=compiler)["library"]
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
        report = load("scatter", cache=cache, CXX=compiler, TMPDIR=temporary)
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
    again = load("scatter", cache=cache, CXX=compiler, TMPDIR=temporary)
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
    report = load("scatter", cache=cache, CXX=compiler)
    assert report["loaded"] == [True] and report["library"] == evil
    assert len(calls(compiler)) == 2
    for path in (evil, evil.with_suffix(".json")):
        assert path.lstat().st_uid == os.geteuid() and not path.is_symlink()
        assert not path.stat().st_mode & 0o022


def loaded_with_all_rights():
    os.umask(0)
    return loaded_here("scatter")


def test_what_is_made_is_for_this_user_alone_whatever_the_umask(compiled, tmp_path):
    compiler = copying_compiler(tmp_path / "compiler", compiled["library"])
    cache = tmp_path / "new" / "cache"
    library = Child(loaded_with_all_rights, cache=cache, CXX=compiler).result()["library"]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (cache, cache.parent)] == [0o700, 0o700]
    assert not any(path.stat().st_mode & 0o022 for path in (library, library.with_suffix(".json")))


def test_what_killed_processes_left_goes_at_the_next_start(compiled, tmp_path):
    cache = tmp_path / "cache"
    compiler = copying_compiler(tmp_path / "compiler", compiled["library"])
    load("scatter", cache=cache, CXX=compiler)
    left, old = cache / "density-0123-4567.build-abcd", time.time() - 2 * 24 * 3600
    left.mkdir()
    (left / "density.so").write_bytes(b"part of a library")
    own = ["lock", "of the user's", "thesis.build-2024"]
    for name in ("tuned-a gpu.old.part", "tuned-a gpu.new.part", *own[:2]):
        (cache / name).touch()
    (cache / own[2]).mkdir()
    os.utime(cache / "tuned-a gpu.old.part", (old, old))
    with (cache / "planarity-0123-4567.lock").open("a") as handle:
        # Another process is at it.
        fcntl.lockf(handle, fcntl.LOCK_EX)
        (cache / "planarity-0123-4567.build-abcd").mkdir()
        load("scatter", cache=cache, CXX=compiler)
        assert leftovers(cache) == sorted([*own, "planarity-0123-4567.build-abcd", "tuned-a gpu.new.part"])
    load("scatter", cache=cache, CXX=compiler)
    assert leftovers(cache) == sorted([*own, "tuned-a gpu.new.part"])
    assert len(calls(compiler)) == 1


def openmp_runtimes():
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in maps if "libgomp" in line or "omp.so" in line or "omp5.so" in line}


def digests_and_new_runtimes():
    """Digest what the operators return at several thread counts; name OpenMP libraries that they brought."""
    before = openmp_runtimes()
    generator = torch.Generator().manual_seed(0)
    values = torch.randn((300, 7, 8, 9), generator=generator)
    starts = torch.randint(0, 40, (3, 300, 1), generator=generator)
    a, b, c = ((start + torch.arange(n)) % 40 for start, n in zip(starts, (7, 8, 9), strict=True))
    wa, wbwc = (a * 1600).int(), (b[:, :, None] * 40 + c[:, None, :]).int()
    assert build.load("scatter"), build.error_text("scatter")
    digests = []
    for n_threads in (1, 2, 3, 8):
        torch.set_num_threads(n_threads)
        density = structured_scatter_add(values, wa, wbwc, 40**3)
        read = structured_gather(density, wa, wbwc)
        digests.append(hashlib.sha256(density.numpy().tobytes() + read.numpy().tobytes()).hexdigest())
    return digests, openmp_runtimes() - before, build.status()["scatter"].flags


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names instruction sets of x86-64")
def test_every_instruction_set_and_kind_of_thread_gives_the_same_bits(compiled, kernels_of_other_flags):
    variants = {
        flags: Child(
            digests_and_new_runtimes, cache=kernels_of_other_flags, OPENMM_DENSITY_CXXFLAGS=" ".join(flags)
        )
        for flags in (("-march=x86-64", "-fno-openmp", "-O0"), ("-march=x86-64-v3", "-O0"))
    }
    native, new_runtimes, _ = Child(
        digests_and_new_runtimes, cache=compiled["cache"], CXX=compiled["compiler"]
    ).result()
    assert len(native) == 4
    assert len(set(native)) == 1
    assert new_runtimes == set(), "the kernels run in torch's own OpenMP threads"
    for flags, variant in variants.items():
        digests, _, used = variant.result()
        assert digests == native
        assert used == ("-fopenmp", *flags)


def test_status_names_every_folder_that_has_a_kernel():
    report = build.status()
    assert "scatter" in report
    assert set(report) == {path.parent.name for path in build.KERNELS.glob("*/cpu.cpp")}
    for folder, status in report.items():
        assert status.folder == folder
        assert status.loaded <= status.tried
        if REAL_COMPILER and not os.environ.get("CXX"):
            assert status.compiler == REAL_COMPILER
            assert status.compiler_version.startswith("g++")

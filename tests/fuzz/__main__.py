"""Read mutated files in children of this process, which may crash, hang or run out of memory without harm to the rest.

``python -m tests.fuzz --mutations 10000`` reads so many of each format; ``--reader pdb --first 123 --mutations 1 --keep DIR`` one
again, and keeps the file.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from .readers import READERS, Reader, outcome_of

MEMORY = 300 << 20
"""Bytes that a reader may take beyond those of this process."""
SECONDS = 5.0
"""That reading a small file may take."""
HANGS_AFTER = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--reader", choices=READERS, action="append", help="may be repeated; all by default")
    parser.add_argument(
        "--mutations", type=int, default=500, metavar="N", help="of each format (%(default)s)"
    )
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where files that fail are kept")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    options = parser.parse_args()
    found = {}
    for name in options.reader or READERS:
        started = time.monotonic()
        seeds = range(options.first, options.first + options.mutations)
        found[name] = fuzzed(READERS[name], seeds, options.keep) | {"seconds": time.monotonic() - started}
        if not options.json:
            show(name, found[name])
    if options.json:
        print(json.dumps(found))
    return int(any(each["failures"] for each in found.values()))


def show(name: str, found: dict) -> None:
    kinds = Counter(failure["what"].partition(":")[0] for failure in found["failures"])
    counts = f"{found['read']} read, {found['refused']} refused, {len(found['failures'])} failed"
    times = f"at most {found['longest']:.2f} s for a file, {found['seconds']:.0f} s in all"
    print(f"{name}: {counts}; {times}", flush=True)
    for kind, count in kinds.most_common():
        examples = [failure for failure in found["failures"] if failure["what"].partition(":")[0] == kind][:3]
        print(f"  {count} x {kind}")
        for failure in examples:
            print(f"      seed {failure['seed']}: {failure['what']}")


def fuzzed(reader: Reader, seeds: range, keep: Path | None = None) -> dict:
    """Read the mutations of some seeds; return how many were read and refused, and what failed.

    A child reads until one ends it, then another goes on behind that one.
    """
    reader.samples  # noqa: B018  made here once, for all children
    counts: Counter[str] = Counter(read=0, refused=0)
    failures: list[dict] = []
    longest = 0.0
    while seeds:
        seed = seeds[0]
        for report in reports_of_child(reader, seeds):
            if "started" in report:
                seed = report["started"]
                continue
            outcome, said = report["outcome"], report["said"]
            longest = max(longest, report["seconds"])
            if outcome != "failed" and report["seconds"] > SECONDS:
                outcome, said = "failed", f"it takes {report['seconds']:.1f} s"
            if outcome == "failed":
                failures.append({"seed": seed, "what": said})
                if keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{reader.name}_{seed}{reader.suffix}").write_bytes(reader.mutated(seed))
            else:
                counts[outcome] += 1
        seeds = range(seed + 1, seeds.stop)
    return {**counts, "failures": failures, "longest": longest}


def reports_of_child(reader: Reader, seeds: range) -> Iterator[dict]:
    """Let a child read the mutations of some seeds; yield what it reports, and what ended it before its time."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        status = 1
        try:
            with os.fdopen(into, "w") as reports:
                read_all(reader, seeds, reports)
            status = 0
        finally:
            os._exit(status)
    os.close(into)
    rest, open_, ended = b"", True, ""
    while open_:
        if not select.select([out], [], [], HANGS_AFTER)[0]:
            os.kill(child, signal.SIGKILL)
            ended = f"it hangs, for {HANGS_AFTER:g} s at least"
        chunk = os.read(out, 1 << 16)
        open_ = bool(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        yield from map(json.loads, lines)
    os.close(out)
    _, status = os.waitpid(child, 0)
    if status:
        code = os.waitstatus_to_exitcode(status)
        ended = ended or (f"crash: {signal.Signals(-code).name}" if code < 0 else f"crash: exit {code}")
        yield {"outcome": "failed", "said": ended, "seconds": 0.0}


def read_all(reader: Reader, seeds: range, reports) -> None:
    """Read mutations one by one, and say which has started before it may be the last."""

    def report(**what) -> None:
        reports.write(json.dumps(what) + "\n")
        reports.flush()

    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    os.dup2(sys.stderr.fileno(), 2)
    warnings.simplefilter("ignore")
    limit = address_space() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"damaged{reader.suffix}"
        for seed in seeds:
            path.write_bytes(reader.mutated(seed))
            report(started=seed)
            started = time.monotonic()
            outcome, said = outcome_of(reader, path)
            report(outcome=outcome, said=said[:600], seconds=time.monotonic() - started)


def address_space() -> int:
    """Return the bytes of address space that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(main())

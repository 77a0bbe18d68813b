"""Launch configurations of kernels on the GPU: shipped, or measured once for each GPU and class of problems.

Triton's own ``autotune`` would not do as well. At every key that it has not met it times kernels, which waits for the device:
also on the GPUs for which a configuration ships (where pruning leaves but that one), and also while a CUDA graph is captured,
which ends the capture; here both take what ships. And with more than one configuration it needs a GPU's driver, so that no
kernel would run in Triton's interpreter, in which they are tested where there is no GPU.
"""

from __future__ import annotations

import json
import os
import statistics
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch
import triton

from openmm_density.base.atomic_files import replacing

from .compilation import cache_folder

Configuration = TypeVar("Configuration", bound=tuple)

# Ampere and Hopper: the configurations that the kernels ship with were chosen on them.
_SHIPPED_FOR = (8, 9)
_CALLS = 7

_chosen: dict[str, tuple] = {}
_lock = threading.Lock()


def choose(
    kernel: str,
    problem: tuple[int, ...],
    default: Configuration,
    candidates: Sequence[Configuration],
    run: Callable[[Configuration], object],
) -> Configuration:
    """Return the configuration for a class of problems on the current GPU.

    On GPUs that the kernels were tuned on it is the default. On others the candidates are timed at the first call, and the choice
    is kept in the cache folder of compiled kernels, one file for each GPU. With ``OPENMM_DENSITY_AUTOTUNE=1`` every GPU is
    measured, with ``OPENMM_DENSITY_AUTOTUNE=0`` none. While a CUDA graph is captured nothing can be timed: it takes what is
    known, else the default.
    """
    setting = os.environ.get("OPENMM_DENSITY_AUTOTUNE")
    if not torch.cuda.is_available() or setting == "0":
        return default
    if setting != "1" and torch.cuda.get_device_capability()[0] in _SHIPPED_FOR:
        return default
    gpu = f"{torch.cuda.get_device_name()} triton {triton.__version__}"
    key = f"{kernel} {problem} {gpu}"
    with _lock:
        if key not in _chosen:
            known = _read(gpu).get(f"{kernel} {problem}")
            if known in [list(candidate) for candidate in candidates]:
                _chosen[key] = tuple(known)
            elif torch.cuda.is_current_stream_capturing():
                return default
            else:
                _chosen[key] = _fastest(candidates, run, default)
                _write(gpu, f"{kernel} {problem}", list(_chosen[key]))
        return type(default)(*_chosen[key])


def _fastest(
    candidates: Sequence[Configuration], run: Callable[[Configuration], object], default: Configuration
) -> Configuration:
    times = {}
    for candidate in candidates:
        # Out of registers or shared memory on this GPU: the others serve.
        with suppress(triton.OutOfResources, RuntimeError):
            run(candidate)
            times[candidate] = statistics.median(_milliseconds(run, candidate) for _ in range(_CALLS))
    return min(times, key=lambda candidate: times[candidate], default=default)


def _milliseconds(run: Callable[[Configuration], object], candidate: Configuration) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run(candidate)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def _path(gpu: str) -> Path:
    name = "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in gpu)
    return cache_folder.usable_folder()[0] / f"tuned-{name}.json"


def _read(gpu: str) -> dict[str, list]:
    with suppress(OSError, ValueError):
        found = json.loads(cache_folder.read_own(_path(gpu)))
        if isinstance(found, dict):
            return found
    return {}


def _write(gpu: str, problem: str, configuration: list) -> None:
    """Add a choice to the GPU's file; without a place to write it lasts as long as the process."""
    path = _path(gpu)
    with suppress(OSError):
        if cache_folder.make(path.parent):
            with replacing(path) as temporary:
                temporary.write_text(json.dumps(_read(gpu) | {problem: configuration}, indent=1))
                cache_folder.keep_from_others(temporary)

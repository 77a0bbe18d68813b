"""Time energy and forces of a density fit on the GPU, and planarity, against TorchRef's Triton kernels and plain PyTorch.

Every engine does the same work in one run: the model's density, its cross-correlation with a map and the gradient with respect
to the positions. Times are medians by CUDA events after warm-up. Where a case says "compact", atoms fill a ball in the middle of
the map at the density of a protein (18 Å³ for each heavy atom; in a map too small for that, half of the map), else all of it.

    python examples/benchmarks/density_gpu.py --json density_gpu.json

TorchRef (`pip install torchref`) is timed where it is installed. Its cut-off is hard and ours smooth, a difference of the
density that does not change the work; its kernels always evaluate five Gaussians, so that cases of one are compared with five of
which four are zero.
"""

from __future__ import annotations

import argparse
import importlib
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from figures import write_figures
from planarity_cpu import eager, random_planes

from openmm_density.kernels.density import CROSS_CORRELATION, target_moments
from openmm_density.kernels.planarity import Planes, pack_planes

Engine = Callable[[], tuple[torch.Tensor, torch.Tensor]]

SIGMA = 1.1
CUTOFF = 4.0 * SIGMA
VOLUME_PER_ATOM = 18.0


@dataclass(frozen=True)
class Case:
    """One problem: so many atoms of so many Gaussians on n³ voxels of 1 Å."""

    atoms: int
    n: int
    gaussians: int = 1
    skewed: bool = False
    compact: bool = True

    @property
    def name(self) -> str:
        """Describe the case in a line."""
        words = [
            f"{self.atoms:>9,} atoms",
            f"{self.n}³",
            f"{self.gaussians} Gaussian{'s'[: self.gaussians > 1]}",
        ]
        words += ["triclinic"] * self.skewed + ["compact" if self.compact else "spread"]
        return ", ".join(words)


CASES = (
    Case(5_000, 128),
    Case(20_000, 128),
    Case(20_000, 256),
    Case(20_000, 512),
    Case(100_000, 128),
    Case(100_000, 256),
    Case(100_000, 256, compact=False),
    Case(100_000, 256, gaussians=5),
    Case(100_000, 256, gaussians=5, compact=False),
    Case(100_000, 256, skewed=True),
    Case(100_000, 256, gaussians=5, skewed=True),
    Case(100_000, 512),
    Case(1_000_000, 512),
    Case(1_000_000, 512, gaussians=5),
)
PLANES = (1_000, 20_000, 200_000)


class Problem:
    """The tensors of a case, on the GPU."""

    def __init__(self, case: Case) -> None:
        generator = torch.Generator("cuda").manual_seed(case.atoms + case.n)
        float64 = {"dtype": torch.float64, "device": "cuda"}

        def uniform(*size: int) -> torch.Tensor:
            return torch.rand(*size, generator=generator, **float64)

        self.case = case
        self.shape = [case.n] * 3
        self.matrix = torch.eye(3, **float64)
        if case.skewed:
            cosines = [math.cos(math.radians(angle)) for angle in (75.0, 100.0, 110.0)]
            y = math.sin(math.radians(110.0))
            z_y = (cosines[0] - cosines[1] * cosines[2]) / y
            z = (cosines[1], z_y, math.sqrt(1 - cosines[1] ** 2 - z_y**2))
            self.matrix = torch.tensor([[1, cosines[2], z[0]], [0, y, z[1]], [0, 0, z[2]]], **float64)
        self.origin = torch.zeros(3, **float64)
        volume = float(torch.linalg.det(self.matrix)) * case.n**3
        middle = self.matrix @ torch.full((3,), case.n / 2, **float64)
        if case.compact:
            radius = (3 / (4 * math.pi) * min(VOLUME_PER_ATOM * case.atoms, 0.5 * volume)) ** (1 / 3)
            direction = torch.randn(case.atoms, 3, generator=generator, **float64)
            direction /= direction.norm(dim=1, keepdim=True)
            positions = middle + radius * uniform(case.atoms, 1) ** (1 / 3) * direction
        else:
            positions = (0.02 + 0.96 * uniform(case.atoms, 3)) * case.n @ self.matrix.T
        self.positions = positions.float()
        self.amplitudes = torch.zeros(case.atoms, case.gaussians, device="cuda")
        self.exponents = torch.ones(case.atoms, case.gaussians, device="cuda")
        for c in range(case.gaussians):
            # The narrowest is that of one Gaussian: all reach the cut-off, as form factors blurred to a resolution do.
            self.exponents[:, c] = 0.5 / (SIGMA * (1 + 0.05 * c)) ** 2
            self.amplitudes[:, c] = (0.5 + uniform(case.atoms)).float() / case.gaussians
        self.atoms = torch.arange(case.atoms, device="cuda")
        self.total_weight = float((self.amplitudes * (math.pi / self.exponents) ** 1.5).sum())
        moved = self.positions + 0.8 * torch.randn(case.atoms, 3, generator=generator, device="cuda")
        splat = torch.ops.openmm_density.density_splat
        noise = torch.randn(self.shape, generator=generator, device="cuda")
        self.target = 0.2 * noise + splat(
            moved, self.amplitudes, self.exponents, CUTOFF, self.matrix, self.origin, self.shape, False
        )
        self.moments = target_moments(self.target)

    def ours(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Evaluate by the operator of this project."""
        return torch.ops.openmm_density.density_similarity(
            self.positions,
            self.atoms,
            self.amplitudes,
            self.exponents,
            CUTOFF,
            self.target,
            self.moments,
            self.matrix,
            self.origin,
            False,
            CROSS_CORRELATION,
            self.total_weight,
        )

    def plain(self, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
        """Evaluate by plain PyTorch, density and gradient written out, a few thousand atoms at a time."""
        density = torch.zeros(self.target.numel(), dtype=dtype, device="cuda")
        for part in self._parts(dtype):
            density.index_add_(0, part.flat.reshape(-1), part.value.reshape(-1))
        target = self.target.reshape(-1).to(dtype)
        square, product = (density.double() ** 2).sum(), (density.double() * target.double()).sum()
        norm = torch.sqrt(square * self.moments[2])
        similarity = product / norm
        field = (target / norm - density * (similarity / square)).to(dtype)
        gradient = torch.empty_like(self.positions, dtype=dtype)
        for part in self._parts(dtype):
            weight = (field[part.flat] * part.slope)[:, :, None]
            gradient[part.atoms] = -2 * (weight * part.displacement).sum(dim=1)
        return similarity, gradient

    @dataclass
    class Part:
        """Some atoms and the voxels around them."""

        atoms: slice
        flat: torch.Tensor
        displacement: torch.Tensor
        value: torch.Tensor
        slope: torch.Tensor

    def _parts(self, dtype: torch.dtype) -> Any:
        inverse = torch.linalg.inv(self.matrix)
        reach = [int(r) for r in torch.ceil(CUTOFF * inverse.norm(dim=1)) + 1]
        steps = torch.cartesian_prod(*[torch.arange(-r, r + 1, device="cuda") for r in reach])
        matrix, s_c = self.matrix.to(dtype), CUTOFF**2
        for begin in range(0, self.case.atoms, 8192):
            atoms = slice(begin, begin + 8192)
            fractional = (self.positions[atoms].double() - self.origin) @ inverse.T
            nearest = fractional.round()
            index = nearest.long()[:, None, :] + steps
            displacement = (steps - (fractional - nearest)[:, None, :]).to(dtype) @ matrix.T
            s = (displacement**2).sum(dim=-1)
            inside = ((index >= 0) & (index < self.case.n)).all(dim=-1) & (s < s_c)
            value, slope = torch.zeros_like(s), torch.zeros_like(s)
            for c in range(self.case.gaussians):
                a, alpha = (x[atoms, c, None].to(dtype) for x in (self.amplitudes, self.exponents))
                edge = torch.exp(-alpha * s_c)
                e = torch.exp(-alpha * s)
                value += a * (e - edge + alpha * edge * (s - s_c))
                slope += a * alpha * (edge - e)
            index = index.clamp(0, self.case.n - 1)
            flat = (index[..., 2] * self.case.n + index[..., 1]) * self.case.n + index[..., 0]
            zero = torch.zeros((), dtype=dtype, device="cuda")
            yield self.Part(
                atoms, flat, displacement, torch.where(inside, value, zero), torch.where(inside, slope, zero)
            )

    def pairs(self) -> int:
        """Count the pairs of an atom and a voxel within its cut-off."""
        return sum(int((part.value != 0).sum()) for part in self._parts(torch.float32))

    def torchref(self) -> Engine | None:
        """Return TorchRef's splat with PyTorch's correlation around it, differentiated by autograd."""
        try:
            kernels = importlib.import_module("torchref.base.electron_density.kernels.cuda.variable_radius")
        except ImportError:
            return None
        if max(self.shape) ** 3 > 2**31 - 1:
            return None
        # Its grid is indexed x, y, z, its cell periodic; a Gaussian is A (4π/(b + B))^{3/2} exp(−4π² s/(b + B)).
        a, b = torch.zeros(2, self.case.atoms, 5, device="cuda")
        b += 4 * math.pi**2 / self.exponents[:, :1]
        b[:, : self.case.gaussians] = 4 * math.pi**2 / self.exponents
        a[:, : self.case.gaussians] = self.amplitudes * (math.pi / self.exponents) ** 1.5
        ones = torch.ones(self.case.atoms, device="cuda")
        cell = (self.matrix * self.case.n).float()
        inverse = torch.linalg.inv(self.matrix * self.case.n).float()
        target = self.target.permute(2, 1, 0).contiguous()
        norm = torch.sqrt(self.moments[2])

        def evaluate() -> tuple[torch.Tensor, torch.Tensor]:
            x = self.positions.detach().requires_grad_()
            density = kernels.add_isotropic_cuda_var(
                torch.zeros_like(target), x, 0 * ones, ones, a, b, inverse, cell, CUTOFF * ones
            )
            similarity = (density * target).sum() / (density.square().sum().sqrt() * norm)
            (gradient,) = torch.autograd.grad(similarity, x)
            return similarity.detach(), gradient

        return evaluate


def replayed(engine: Engine) -> tuple[Callable[[], None], tuple[torch.Tensor, torch.Tensor]]:
    """Capture an engine in a CUDA graph; return its replay and where the results are."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        engine()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = engine()
    return graph.replay, results


def microseconds(call: Callable[[], Any], seconds: float) -> float:
    """Return the median time of a call by CUDA events, after warm-up."""
    call()
    torch.cuda.synchronize()

    def once() -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end)

    warm = statistics.median(once() for _ in range(3))
    return statistics.median(once() for _ in range(max(5, min(200, int(1e6 * seconds / warm)))))


def largest_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the largest deviation over the largest exact value."""
    return float((found.double() - exact.double()).abs().max() / exact.double().abs().max())


def copy_bandwidth() -> float:
    """Measure bytes read and written per second by a large copy."""
    source = torch.empty(1 << 28, device="cuda").normal_()
    copy = torch.empty_like(source)
    return 2e6 * source.nbytes / microseconds(lambda: copy.copy_(source), 0.2)


def peak_arithmetic() -> float:
    """Work out float32 operations per second: 128 fused multiply-adds for each multiprocessor and tick of its clock."""
    from triton.runtime import driver

    device = torch.cuda.current_device()
    clock = 1e3 * driver.active.utils.get_device_properties(device)["sm_clock_rate"]
    return 2 * 128 * torch.cuda.get_device_properties(device).multi_processor_count * clock


def measure_density(case: Case, seconds: float, peers: bool, bandwidth: float, peak: float) -> dict[str, Any]:
    """Check and time one case."""
    problem = Problem(case)
    exact_similarity, exact = problem.plain(torch.float64)
    similarity, gradient = problem.ours()
    replay, results = replayed(problem.ours)
    report: dict[str, Any] = {
        "case": case.name.strip(),
        "error_of_similarity": abs(float(similarity - exact_similarity)),
        "error_of_forces": largest_error(gradient, exact),
    }
    bits = []
    for _ in range(5):
        replay()
        bits.append((results[0].clone(), results[1].clone()))
    again = problem.ours()
    report["same_bits"] = all(
        torch.equal(s, similarity) and torch.equal(g, gradient) for s, g in [*bits, again]
    )
    report["replay_us"] = microseconds(replay, seconds)
    report["eager_us"] = microseconds(problem.ours, seconds)
    pairs = problem.pairs()
    splat = torch.ops.openmm_density.density_splat(
        problem.positions,
        torch.ones_like(problem.amplitudes),
        problem.exponents,
        CUTOFF,
        problem.matrix,
        problem.origin,
        problem.shape,
        False,
    )
    touched = int((splat != 0).sum())
    del splat
    # Within a cut-off: for the density s, Gaussians, what smooths the cut-off and the sum; for the forces s, the Gaussians
    # with one exponential each, dS/d(density), and three sums.
    operations = pairs * ((6 + 2 * case.gaussians) + (15 + 4 * case.gaussians))
    # Of every voxel that an atom touches: the target read, the density written, both read.
    traffic = 16 * touched + 4 * case.atoms * (3 + 3 + 2 * case.gaussians)
    report |= {
        "pairs": pairs,
        "touched_voxels": touched,
        "operations": operations,
        "bytes": traffic,
        "fraction_of_peak_arithmetic": operations / (1e-6 * report["replay_us"]) / peak,
        "fraction_of_copy_bandwidth": traffic / (1e-6 * report["replay_us"]) / bandwidth,
    }
    if peers:
        report["plain_us"] = microseconds(problem.plain, seconds)
        torchref = problem.torchref()
        if torchref is not None:
            report["torchref_error_of_forces"] = largest_error(torchref()[1], exact)
            report["torchref_us"] = microseconds(torchref, seconds)
            try:
                report["torchref_replay_us"] = microseconds(replayed(torchref)[0], seconds)
            except RuntimeError:
                torch.cuda.synchronize()
    return report


def measure_planarity(n_planes: int, seconds: float) -> dict[str, Any]:
    """Time the planarity operator and eager PyTorch with the normal held fixed."""
    coordinates, groups = random_planes(n_planes)
    positions = torch.from_numpy(coordinates).float().cuda()
    packed = pack_planes(groups, n_atoms=len(positions))
    planes = Planes(*(table.cuda() for table in packed))
    tensors = [(torch.from_numpy(i).cuda(), torch.from_numpy(s).float().cuda()) for i, s in groups]

    def ours() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ops.openmm_density.planarity(positions, *planes)

    peer = eager(positions, tensors, through_eigh=False)
    _, gradient = ours()
    return {
        "planes": n_planes,
        "error_of_gradient": largest_error(
            gradient.cpu(), torch.ops.openmm_density.planarity(positions.double().cpu(), *packed)[1]
        ),
        "replay_us": microseconds(replayed(ours)[0], seconds),
        "eager_us": microseconds(ours, seconds),
        "plain_us": microseconds(peer, seconds),
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description="Time the GPU's density and planarity kernels and their peers."
    )
    parser.add_argument(
        "--seconds", type=float, default=0.3, help="time for each figure (default: %(default)s)"
    )
    parser.add_argument("--no-peers", action="store_true", help="leave out TorchRef and plain PyTorch")
    parser.add_argument("--only", default="", help="only the cases whose name holds this")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no GPU here that torch can use")

    bandwidth, peak = copy_bandwidth(), peak_arithmetic()
    name = torch.cuda.get_device_name()
    print(
        f"{name}, torch {torch.__version__}: copies {bandwidth / 1e12:.2f} TB/s, peak {peak / 1e12:.1f} TFLOP/s (float32)\n"
    )
    print("Energy and forces, cross-correlation, σ = 1.1 Å at 4σ; µs")
    print(
        f"{'':52}{'replay':>8}{'eager':>8}{'TorchRef':>10}{'its replay':>11}{'PyTorch':>9}"
        f"{'force error':>12}{'bits':>6}{'peak':>6}{'copy':>6}"
    )
    report: dict[str, Any] = {
        "gpu": name,
        "torch": torch.__version__,
        "copy_bytes_per_second": bandwidth,
        "peak_operations_per_second": peak,
        "density": [],
        "planarity": [],
    }
    for case in CASES:
        if arguments.only not in case.name:
            continue
        found = measure_density(case, arguments.seconds, not arguments.no_peers, bandwidth, peak)
        report["density"].append(found)
        peers = [found.get(key) for key in ("torchref_us", "torchref_replay_us", "plain_us")]
        columns = [f"{value:.0f}" if value else "-" for value in peers]
        print(
            f"{case.name:52}{found['replay_us']:8.0f}{found['eager_us']:8.0f}{columns[0]:>10}{columns[1]:>11}{columns[2]:>9}"
            f"{found['error_of_forces']:12.1e}{'same' if found['same_bits'] else 'DIFFER':>7}"
            f"{found['fraction_of_peak_arithmetic']:6.1%}{found['fraction_of_copy_bandwidth']:6.1%}",
            flush=True,
        )
        torch.cuda.empty_cache()
    if not arguments.only:
        print("\nPlanarity, energy and gradient; µs")
        print(f"{'planes':>10}{'replay':>9}{'eager':>9}{'PyTorch':>10}{'error':>10}")
        for n_planes in PLANES:
            found = measure_planarity(n_planes, arguments.seconds)
            report["planarity"].append(found)
            print(
                f"{n_planes:10,}{found['replay_us']:9.1f}{found['eager_us']:9.1f}{found['plain_us']:10.0f}"
                f"{found['error_of_gradient']:10.1e}"
            )
    if arguments.json:
        write_figures(arguments.json, report, torch.cuda.get_device_name())


if __name__ == "__main__":
    main()

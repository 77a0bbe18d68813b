"""PaiNN in plain PyTorch: what is trained, and what `openmm_density.energies.PaiNN` is tested against.

Source: Schütt, Unke and Gastegger, ICML 2021 (arXiv:2102.03150), as its authors' SchNetPack has it. With s a scalar and **v** a
vector per atom and feature, r the distance and **u** the direction from atom i to j, and c(r) = ½ (cos(π r/r_c) + 1) below the
cut-off, a layer adds

    (φ, φ′, φ″)_j = D₂ silu(D₁ s_j)        (w, w′, w″)_ij = (K b(r) + k) c(r),  b_n(r) = sin(n π r/r_c)/r, r in Å

    Δs_i = Σ_j w φ_j        Δ**v**_i = Σ_j w′ φ′_j **u**_ij + w″ φ″_j **v**_j                    the message

and then, with **p** = U **v** and **q** = V **v**, (a, a′, a″) = D₄ silu(D₃ [s, |**q**|]),

    Δ**v** = a **p**        Δs = a′ + a″ **p**·**q**                                             the update.

The energy is the sum of scale · d₂ silu(d₁ s_i) and of an offset per element, and of a mean energy of the molecule.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..base.errors import InputError
from ..base.units import takes_units
from ..base.wording import listing

_SETTINGS = ("elements", "features", "layers", "n_radial", "cutoff")
# Of these there are kernels.
FEATURES, MOST_RADIAL = (32, 64, 128), 128
# Below |q|² in the root of |q|, whose derivative is then finite at 0.
NORM_FLOOR = 1e-8
ANGSTROM_PER_NM = 10.0
# Atoms nearer to one another than this, in nm², stay where their derivatives are finite.
_NEAREST_SQUARED = 1e-8


class PaiNNNetwork(nn.Module):
    """The energy of one molecule as a function of its positions, differentiable twice.

    Parameters
    ----------
    elements : sequence of int
        The atomic numbers of the n atoms, in their order.
    features : int
        32, 64 or 128 scalars, and as many vectors, per atom.
    layers : int
        Messages and updates that follow one another.
    n_radial : int
        Functions b_n of the distance, 128 at most.
    cutoff : float
        r_c in nm.

    Attributes
    ----------
    mean_energy : Tensor, shape (), float64
        In kJ/mol, a buffer, as are the next two, which stay float64 whatever the module's type: energies may be large, and their
        differences keep their digits.
    element_offsets : Tensor, shape (number of different elements,), float64
        In kJ/mol per atom, in the order of ``present``.
    scale : Tensor, shape (), float64
        In kJ/mol: what 1 of the last layer stands for.
    present : list of int
        The different elements, ascending.

    Raises
    ------
    InputError
        If a number is none of those above.
    """

    @takes_units(cutoff="nm")
    def __init__(
        self,
        elements: Sequence[int],
        features: int = 64,
        layers: int = 3,
        n_radial: int = 20,
        cutoff: float = 0.5,
    ) -> None:
        super().__init__()
        elements = list(elements)
        _check(elements, features, layers, n_radial, cutoff)
        self.elements = [int(number) for number in elements]
        self.features = int(features)
        self.n_radial = int(n_radial)
        self.cutoff = float(cutoff)
        self.present = sorted(set(self.elements))
        self.register_buffer(
            "kinds", torch.tensor([self.present.index(number) for number in self.elements]), persistent=False
        )
        self.register_buffer("orders", torch.arange(1.0, n_radial + 1), persistent=False)
        self.register_buffer("itself", torch.eye(len(elements), dtype=torch.bool), persistent=False)
        self.register_buffer("mean_energy", torch.zeros((), dtype=torch.float64))
        self.register_buffer("element_offsets", torch.zeros(len(self.present), dtype=torch.float64))
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))
        self.embedding = nn.Embedding(len(self.present), features)
        self.layers = nn.ModuleList([_Layer(features, n_radial) for _ in range(layers)])
        self.readout = nn.Sequential(
            nn.Linear(features, features // 2), nn.SiLU(), nn.Linear(features // 2, 1)
        )
        _initialise(self.readout)

    def _apply(self, fn: Callable[[Tensor], Tensor], *arguments: Any, **options: Any) -> PaiNNNetwork:
        kept = {name: getattr(self, name) for name in ("mean_energy", "element_offsets", "scale")}
        super()._apply(fn, *arguments, **options)
        for name, before in kept.items():
            setattr(self, name, before.to(getattr(self, name).device))
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain numbers and lists, for a file."""
        return {
            "elements": list(self.elements),
            "features": self.features,
            "layers": len(self.layers),
            "n_radial": self.n_radial,
            "cutoff": self.cutoff,
        }

    def forward(self, positions: Tensor) -> Tensor:
        """Return the energy of each geometry.

        Parameters
        ----------
        positions : Tensor, shape (..., n, 3)
            In nm, of the parameters' type.

        Returns
        -------
        Tensor, shape (...), float64
            In kJ/mol; sums over atoms are float64.
        """
        return self.total(self.atomic_energies(positions))

    def total(self, atomic: Tensor) -> Tensor:
        """Return energies in kJ/mol, shape (...), float64, from what `atomic_energies` returned, shape (..., n)."""
        return (
            self.scale * atomic.sum(-1, dtype=torch.float64)
            + self.element_offsets[self.kinds].sum()
            + self.mean_energy
        )

    def atomic_energies(self, positions: Tensor) -> Tensor:
        """Return each atom's part of the energy, shape (..., n), in units of ``scale`` and without offsets and mean."""
        n = len(self.elements)
        geometries = positions.reshape(-1, n, 3)
        direction, radial = self._edges(geometries)
        scalars = self.embedding(self.kinds).expand(len(geometries), n, self.features)
        vectors = scalars.new_zeros((len(geometries), 3, n, self.features))
        for layer in self.layers:
            scalars, vectors = layer(scalars, vectors, direction, radial)
        return self.readout(scalars).reshape(positions.shape[:-1])

    def _edges(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return directions from atom i to j, shape (B, n, 3, n), and b_n(r) c(r), then c(r), shape (n_radial + 1, B n n)."""
        displacement = positions.mT[:, None] - positions[..., None]
        # An atom is beyond its own cut-off.
        squared = (displacement * displacement).sum(2).masked_fill(self.itself, 4 * self.cutoff**2)
        distance = squared.clamp_min(_NEAREST_SQUARED).sqrt()
        angle = (math.pi / self.cutoff) * distance
        envelope = torch.where(distance < self.cutoff, 0.5 * (torch.cos(angle) + 1), 0.0).reshape(1, -1)
        waves = torch.sin(self.orders[:, None] * angle.reshape(1, -1))
        basis = waves / (ANGSTROM_PER_NM * distance.reshape(1, -1))
        return displacement / distance[:, :, None], torch.cat([basis * envelope, envelope])

    def tensors(self) -> dict[str, Tensor]:
        """Return all parameters and buffers by name, on the CPU, as safetensors stores them."""
        return {name: each.detach().cpu().contiguous() for name, each in self.state_dict().items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], settings: Mapping[str, Any]) -> PaiNNNetwork:
        """Build the network that `tensors` and `settings` describe, of the parameters' type.

        Raises
        ------
        InputError
            If a tensor or a setting is missing, unknown, or has another shape than the settings say.
        """
        remedy = "give both as they came from tensors() and settings of one network"
        unlike = [name for name in settings if name not in _SETTINGS]
        if unlike or "elements" not in settings:
            raise InputError(
                f"must hold elements, and may hold {listing(_SETTINGS[1:], len(_SETTINGS))}",
                argument="settings",
                found=", ".join(map(str, unlike or settings)) or "nothing",
                remedy=remedy,
            )
        network = cls(**settings)
        wanted = network.state_dict()
        if wanted.keys() != tensors.keys():
            lacking, unknown = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
            raise InputError(
                "must be those that a network of these settings has",
                argument="tensors",
                found=f"no {listing(lacking, 3)}" if lacking else f"{listing(unknown, 3)} too",
                remedy=remedy,
            )
        for name, tensor in tensors.items():
            if tensor.shape != wanted[name].shape or not tensor.is_floating_point():
                raise InputError(
                    f'"{name}" must have the shape {tuple(wanted[name].shape)}',
                    argument="tensors",
                    found=tuple(tensor.shape),
                    remedy=remedy,
                )
        network.to(tensors["embedding.weight"].dtype).load_state_dict(dict(tensors))
        return network


class _Layer(nn.Module):
    """A message and an update; vectors have the shape (B, 3, n, F)."""

    def __init__(self, features: int, n_radial: int) -> None:
        super().__init__()
        self.features = features
        self.message = _two_layers(features, features, 3 * features)
        self.filter = nn.Linear(n_radial, 3 * features)
        self.mix = nn.Linear(features, 2 * features, bias=False)
        self.update = _two_layers(2 * features, features, 3 * features)
        _initialise(self)

    def forward(
        self, scalars: Tensor, vectors: Tensor, direction: Tensor, radial: Tensor
    ) -> tuple[Tensor, Tensor]:
        b, n, f = scalars.shape
        kinds = torch.cat([self.filter.weight, self.filter.bias[:, None]], 1).split(f)
        sent = self.message(scalars).split(f, -1)
        # Sums over neighbours j are products of matrices, one per feature or per atom i: the arrays of all pairs and features,
        # which take most of the time, are made in the order in which these read them.
        by_feature = [(kinds[k] @ radial).view(f, b, n, n) for k in (0, 2)]
        by_atom = (radial.T @ kinds[1].T).view(b, n, n, f) * sent[1][:, None]
        scalars = scalars + (by_feature[0] @ sent[0].permute(2, 0, 1)[..., None])[..., 0].permute(1, 2, 0)
        along = (direction @ by_atom).transpose(1, 2)
        carried = (by_feature[1] @ (sent[2][:, None] * vectors).permute(3, 0, 2, 1)).permute(1, 3, 2, 0)
        vectors = vectors + along + carried

        first, second = self.mix(vectors).split(self.features, -1)
        length = torch.sqrt((second * second).sum(1) + NORM_FLOOR)
        grown, added, turned = self.update(torch.cat([scalars, length], -1)).split(self.features, -1)
        return scalars + added + turned * (first * second).sum(1), vectors + grown[:, None] * first


def _two_layers(n_in: int, n_hidden: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(n_in, n_hidden), nn.SiLU(), nn.Linear(n_hidden, n_out))


def _initialise(module: nn.Module) -> None:
    """Draw weights as SchNetPack does: Glorot's uniform distribution, and biases of 0."""
    for each in module.modules():
        if isinstance(each, nn.Linear):
            nn.init.xavier_uniform_(each.weight)
            if each.bias is not None:
                nn.init.zeros_(each.bias)


def _is_whole(number: Any) -> bool:
    return isinstance(number, numbers.Real) and math.isfinite(number) and number == int(number)


def _check(elements: list[Any], features: int, layers: int, n_radial: int, cutoff: float) -> None:
    """Raise an InputError where a network cannot be made of these numbers."""
    unknown = [number for number in elements if not _is_whole(number) or not 1 <= number <= 118]
    if unknown or not elements:
        raise InputError(
            "must be atomic numbers from 1 to 118",
            argument="elements",
            found=unknown[0] if unknown else "none",
            remedy="give that of every atom, as in [8, 1, 1]",
        )
    if features not in FEATURES:
        raise InputError(
            "must be 32, 64 or 128", argument="features", found=features, remedy="choose one of them"
        )
    for name, number, most in (("layers", layers, math.inf), ("n_radial", n_radial, MOST_RADIAL)):
        if not _is_whole(number) or not 1 <= number <= most:
            wanted = "of 1 or more" if most == math.inf else f"from 1 to {most}"
            raise InputError(
                f"must be a whole number {wanted}", argument=name, found=number, remedy="give 3 or 20"
            )
    if not (isinstance(cutoff, numbers.Real) and math.isfinite(cutoff) and cutoff > 0):
        raise InputError(
            "must be a positive length in nm", argument="cutoff", found=cutoff, remedy="give 0.5"
        )

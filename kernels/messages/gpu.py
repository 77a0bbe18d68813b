"""PaiNN's network on the GPU."""

from .gpu_network import painn

__all__ = ["painn"]

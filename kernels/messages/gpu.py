"""PaiNN on the GPU: a network has kernels of its own (`gpu_network`); messages alone, which no force calls, are PyTorch's."""

from __future__ import annotations

from ..library import in_own_thread
from . import reference
from .gpu_network import painn

__all__ = ["messages", "messages_backward", "painn"]

messages = in_own_thread(reference.messages)
messages_backward = in_own_thread(reference.messages_backward)

"""Moves the tensors of a PyTorch job between its devices and pinned host memory, at the speed of the bus."""

from slicelock.hooks.torch_offload.hook import TorchOffload

__all__ = ["TorchOffload"]

"""Moves the tensors of a PyTorch job between its devices and pinned host memory, at the speed of the bus.

`hook` is what a job registers. What is moved: `things` are walked for tensors, `inventory` has their
storages by device, `layout` gives each a place in the pool; `refusals` and `frameworks` name what must not
be touched. How it is moved: `fleet` has all devices, `transfer` moves what is on one, `device` is torch's,
`driver` the few calls that torch lacks, `pool` the pinned memory, in an `address_space` of its own.
Meanwhile `guard` makes an error of touching what is away, and `saving` copies state dicts from the pool.
`torch_module` imports torch when needed.
"""

from slicelock.hooks.torch_offload.hook import TorchOffload

__all__ = ["TorchOffload"]

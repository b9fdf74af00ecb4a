"""The `cuda` backend: the NVIDIA driver saves whole processes from outside, without the job's help.

- `helper.py` calls the driver, in processes of its own; `helpers.py` keeps and ends them.
- `verbs.py` makes one call on all processes of a run together; `answers.py` says what the answers mean.
- `discovery.py` finds the processes, `census.py` those that use CUDA, `stuck.py` those that wait in it.
- `memory.py` measures GPUs, `host.py` control groups; `preflight.py` refuses, `saved_runs.py` remembers.
- `backend.py` puts them together as what the agent asks of an accelerator.
"""

from slicelock_agent.backends.cuda.backend import CudaBackend

__all__ = ["CudaBackend"]

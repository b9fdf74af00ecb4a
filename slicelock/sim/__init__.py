"""A simulated accelerator: device memory in a file, which one run's state fits and two runs' state does not.

Jobs compute on it (`SimDevice.attach`, `array`, `use`); the agent moves a run's bytes off it and back from
outside (`SimDevice.open`, `admit`, `save_to`, `poison`, `restore_from`). Nothing keeps a job from touching
the memory outside its turn: then it reads poison, or destroys what another job has there, and its results
show it.
"""

from slicelock.sim.device import SimDevice, TurnFacts
from slicelock.sim.record import Admission, Move, Record, Stray, Use

__all__ = ["Admission", "Move", "Record", "SimDevice", "Stray", "TurnFacts", "Use"]

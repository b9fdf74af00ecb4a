"""The ways to move a run's device state. Backends do not import each other."""

"""The agent: on each node, moves device state out of the way of the next turn and back."""

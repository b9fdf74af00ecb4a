"""The agent: on each node, moves device state out of the way of the next turn and back.

A beat says what is here and brings what is wanted. For each slice, a switcher compares the two and takes one
step after the other, until the wanted run is let in or it can be said why not.

- The process: `daemon` is the command line, `agent` puts the parts together, `supervision` keeps tasks
  alive; `check` and `health` are what `--check` and `--health` show.
- Before it serves: `devices` are taken by `locks`, `introducing` makes sure that it is alone on its node,
  `declaring` makes its slices known, `taking_over` goes by what an agent without a journal has left.
- With Redis: `pulse` sends beats and takes what they bring, `mailbox` has the commands to hooks, `result`
  says how a switch ended, `advocate` asks for runs that cannot ask; `store` is what they need of a store.
- One slice: `reconcile` decides what to do next, `switcher` does it, `station` is all that it needs for it.
  A `switch` is to one turn, and tells its result. `eviction` gets a run off the devices, `loading` back onto
  them, `arrival` does that while the one before it still leaves, `exchanges` lays out the page over which the
  two change places.
- What is known here: `journal`, in a `journal_file`; `registry` of runs and their processes, `processes` as
  /proc shows them, `offers` of their hooks, GPUs by `nvml`, room on the host by `host_budget`.
- For people alone: `clocked`, `progress`, `utilisation`, `tally`, `metrics`.
- `backends`: the ways to move state.
"""

"""The protocol in a world where everything that can go wrong does, by a seed.

scenario    what happens: a workload and its faults, both data; drawn from a seed, printed, given again
world       the processes, the network, the journal and the bus of one scenario, and their healing
checkers    one invariant a file; they see facts (`facts`, `ledger`), never a machine's opinion of itself
suite       many seeds; `planted` bugs and mutants prove that the checkers bite; `shrink` and `story` explain a failure

It drives `control.transaction` and `control.participation`, the same machines that the runtime drives.
`python -m tutti.simulation --help` is the command."""

"""For tests: a bus in memory with a clock of its own (`kit.BusKit`, the fixture `tutti_bus`), and the contracts that
certify an adapter (`contracts`)."""

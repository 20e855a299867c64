"""What makes a play of it: processes, wires that can be cut, a clock that all share, and what you see of it."""

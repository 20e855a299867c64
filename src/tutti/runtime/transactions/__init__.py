"""Drivers of the machines in `tutti.control`: the manager's and the publisher's side, the participant's side, statuses,
recovery. They carry out effects and say what came of them; they decide nothing."""

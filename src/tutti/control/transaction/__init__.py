"""The manager of one transaction. `messages` says what it is told and what it asks for, `machine` by which rules.

Transaction(plan)                               a new one; the first input is `Started`
Transaction.recovered(record, decision, epoch)  a successor; `decision` is None if there is no row yet
step(input) -> list[Effect]
open, outcome, stage, waiting_for(), check()
"""

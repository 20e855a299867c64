"""One subscriber in one transaction. `messages` says what it is told and what it asks for, `machine` by which rules.

Participation(part)                      the first input is `Accepted` (census) or `Enrolled` (group)
Participation.recovered(part, record)    after a crash, from its own log; the first input is `Recovered`
step(input) -> list[Effect]
may_publish, stage, outcome, check()
"""

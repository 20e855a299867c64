"""A tour of the mediator in half a minute: `python -m examples.mediator_tour`, or `make tour`.

Three exchanges publish trades, five desks handle them: eight processes that know nothing of each other but the type
`TradeDone`. One event is poisoned, one handler raises, and in the middle of it all the server is killed. At the end the
books are compared: what was acknowledged, what was handled, in which order, and what was dead-lettered and why.

    events.py     the type, and the trades of the day
    desks.py      the subscribers, each with its filter; served by `tutti run`
    exchange.py   a publisher
    company.py    processes: start, listen, end
    ledger.py     what everybody reported, held against what should have happened
    stage.py      what you see
    story.py      the acts, in order
"""

"""A meeting, or none: `python -m examples.meeting`, or `make run`.

The scenario is that of the paper in which transactions over publish/subscribe were described first (Vargas, Pesonen,
Gudes, Bacon: Transactions in Content-Based Publish/Subscribe Middleware). What you would write yourself:

    meeting.py     the types that everybody shares
    organiser.py   the publisher
    rooms.py       a subscriber that refuses
    invitees.py    two subscribers, made by one function
    tickets.py     a subscriber that cannot wait, and compensates

The deputy, who finishes for an organiser that died, is `tutti up --resource examples.meeting.organiser:calendar`.

`staging/` makes a play of it:

    company.py     processes: start, listen, kill
    wire.py        wires that can be cut
    databases.py   PostgreSQL: tables, rows, prepared branches, and other people's sessions
    theatre.py     all of them together
    timeline.py    one history out of many logs
    episodes.py    what is staged in each episode, and what is promised
    verdict.py     whether the promises were kept
    stage.py       what you see
    show.py        from beginning to end
    perform.py     runs organiser and deputy with their logs as JSON
"""

"""Every limit of Tutti: its name ends in the unit, its comment says why it is what it is."""

from __future__ import annotations

from typing import Final

# Events
EVENT_MAX_BYTES: Final = 1_000_000  # NATS' default max_payload is 1 MiB, headers included
ROUTING_ATTRIBUTES_MAX_COUNT: Final = 8  # each is a subject token; servers keep an index node per token
ROUTING_TOKEN_MAX_BYTES: Final = 64  # longer values are hashed: the subject line must stay far below 4,096 bytes
PARTITIONS_COUNT: Final = 16  # how many instances of one subscriber can share its work; part of the subject, so fixed
DUPLICATE_WINDOW_SECONDS: Final = 120.0  # a publisher's same event id again within it is not stored twice
EVENT_MAX_DEPTH: Final = 100  # arrays and objects within each other; the receiver's stack must have room for it too
EXTENSIONS_MAX_COUNT: Final = 32  # attributes travel as headers, which servers read for every message
EXTENSION_MAX_CHARACTERS: Final = 1_024  # the longest we know of, tracestate, is 512
HEADERS_MAX_COUNT: Final = 64  # the core attributes, the extensions, and what NATS itself adds
HEADERS_MAX_BYTES: Final = 32_768  # with EVENT_MAX_BYTES they stay below NATS' max_payload of 1 MiB
TYPE_NAME_MAX_CHARACTERS: Final = 255
LIFETIME_MAX_SECONDS: Final = 3_155_760_000.0  # a hundred years: beyond it "for ever" is meant, and calendars end

# Filters
FILTER_MAX_CHARACTERS: Final = 8_192  # longer texts are lists in disguise: use IN, or a routing attribute
FILTER_MAX_DEPTH: Final = 100  # below Python's own recursion limit with room for the caller
FILTER_MAX_NODES: Final = 1_000
FILTER_MAX_STEPS: Final = 10_000  # evaluation steps for one event; a hostile filter ends here
FILTER_STEP_CHARACTERS: Final = 1_000  # text that functions and patterns go through counts as a step per so many
FILTER_DISJUNCTS_MAX_COUNT: Final = (
    64  # ways in which a filter can come true that the index tells apart; else it evaluates
)
FILTER_PREFIX_MAX_CHARACTERS: Final = (
    32  # of a LIKE prefix that the index looks up; an event costs a look-up per length
)
FILTER_SUBJECTS_MAX_COUNT: Final = 64  # subjects that one filter asks the servers for; more are widened

# Delivery
DONE_AHEAD_MAX_COUNT: Final = 65_536  # events behind an unfinished one: memory, and what is repeated after a crash
CONTINUITY_MAX_COUNT: Final = 8_192  # publishers and subjects whose numbers are followed, per partition: up to 3 MB
DUPLICATES_MAX_COUNT: Final = 16_384  # event ids remembered, per partition: up to 4 MB
LEASE_TTL_SECONDS: Final = 3.0  # how long an owner may be silent: the successor starts within seconds
LEASE_RENEW_SECONDS: Final = 1.0  # two renewals may fail before the lease runs out
LEASE_MARGIN_SECONDS: Final = 0.5  # an owner stops so much earlier: clocks may differ in speed by a sixth

# Bus
WIRE_MAX_BYTES: Final = 1_048_576  # one message with its headers: NATS' default max_payload

# NATS, the wire
NATS_CONTROL_LINE_MAX_BYTES: Final = (
    1_048_576  # a server's INFO names every server of a large cluster; beyond it is noise
)
NATS_MESSAGE_MAX_BYTES: Final = 67_108_864  # the servers' own ceiling for max_payload is 64 MiB
NATS_HEADER_NAMES_MAX_COUNT: Final = 4_096  # checked header names that are remembered, so that each is checked once
NATS_WRITE_BUFFER_MAX_BYTES: Final = (
    8_388_608  # unsent bytes on the socket above which appends wait and emits are dropped
)

# NATS, appending
APPEND_QUEUE_MAX_BYTES: Final = 134_217_728  # events that wait for the log, or for its answer, in this process
APPEND_FLIGHT_MAX_COUNT: Final = 2_048  # unanswered single messages a stream; the servers queue 10,000 and then refuse
APPEND_FLIGHT_MAX_BYTES: Final = 33_554_432  # the same in bytes; the servers queue 128 MB
APPEND_BATCH_MAX_COUNT: Final = 1_000  # the servers' limit for an atomic batch
APPEND_BATCH_MAX_BYTES: Final = 8_388_608  # a batch holds back everything behind it: keep it short
APPEND_BATCH_COST_SECONDS: Final = 0.0017  # what an atomic batch costs the server before its first message (measured)
APPEND_STALL_SECONDS: Final = (
    3.0  # no answer for so long on a living connection: the stream's leader is gone, send again
)
APPEND_RETRY_SECONDS: Final = 0.1  # pause before asking again a stream that has no leader
APPEND_SUBJECTS_MAX_COUNT: Final = 65_536  # subjects whose stream is remembered; they carry values, so there is no end
DUPLICATE_MARGIN_SECONDS: Final = 10.0  # nothing is sent again so close to the end of the duplicate window

# NATS, reading
READER_PREFETCH_MAX_COUNT: Final = 8_192  # records asked for ahead of the caller, in two pulls
READER_PREFETCH_MAX_BYTES: Final = 16_777_216  # the same in bytes
READER_PULL_SECONDS: Final = 30.0  # how long the server keeps a request for records
READER_HEARTBEAT_SECONDS: Final = 2.0  # the server speaks at least so often; two and a half times that is silence
READER_INACTIVE_SECONDS: Final = 60.0  # the server forgets a cursor that nobody asks for so long
QUEUE_SILENCE_SECONDS: Final = 5.0  # a taker that says nothing for so long loses its message
STATE_READS_MAX_COUNT: Final = 256  # state records that are asked for at once

# The embedded server
EMBEDDED_GRACE_SECONDS: Final = 1.0  # it outlives its last user so long: commands in a row do not restart it each time
EMBEDDED_WATCH_SECONDS: Final = 0.25  # how often a user looks whether the supervisor lives: two system calls
EMBEDDED_SILENCE_SECONDS: Final = (
    10.0  # a server, or a supervisor, that says nothing for so long hangs: it is killed and replaced
)
EMBEDDED_LOG_MAX_BYTES: Final = 8_388_608
EMBEDDED_LOG_FILES_COUNT: Final = 4
EMBEDDED_DISK_MIN_BYTES: Final = (
    67_108_864  # with less free space it is not started: it would stop in the middle of a write
)
EMBEDDED_DISK_SHARE_RATIO: Final = (
    0.9  # of the free space may become data; the rest is for logs, indexes and the others
)

# The journal
JOURNAL_LEASE_SECONDS: Final = 5.0  # how long a manager may be silent before a successor takes its transactions over
JOURNAL_GROUP_MAX_COUNT: Final = 256  # writes that share one sync: more gain nothing, and the first would wait
JOURNAL_BUSY_SECONDS: Final = 10.0  # for another process that writes, or holds a row, before the caller is told
JOURNAL_CONNECT_SECONDS: Final = 5.0  # for a server to answer a new connection
JOURNAL_WRITERS_COUNT: Final = 4  # connections that write to PostgreSQL, each a group at a time
JOURNAL_READERS_COUNT: Final = 2  # connections that only read
JOURNAL_PAGE_MAX_COUNT: Final = 1_000  # rows that one answer holds
JOURNAL_SHRINK_MAX_COUNT: Final = 1_000  # transactions that one call shrinks: others wait for no more than that
OFFER_MAX_BYTES: Final = 64 * 1024  # of what a subscriber offers when it joins, encoded
JOURNAL_REASON_MAX_CHARACTERS: Final = 2_000  # of a decision; the rest stands in the logs
STATUS_EVENTS_MAX_BYTES: Final = 65_536  # sequences within a status; more go to manifest records beside it
TRANSACTION_EVENTS_MAX_COUNT: Final = 2**20  # of one transaction: so many numbers lie between two statuses

# The embedded PostgreSQL
EMBEDDED_POSTGRES_CONNECTIONS_COUNT: Final = 200  # several processes with pools of their own share it
EMBEDDED_POSTGRES_PREPARED_COUNT: Final = 200  # one per connection, as PostgreSQL advises: none waits for a place
EMBEDDED_POSTGRES_START_SECONDS: Final = 60.0  # after a crash, recovery included

# Publishing
PUBLISH_TIMEOUT_SECONDS: Final = 10.0  # longer than a server takes to come back, shorter than people's patience
PUBLISH_WINDOW_EVENTS: Final = 4_000  # unacknowledged at once in publish_many: some batches, so that none is waited for
PUBLISHER_DOUBTS_MAX_COUNT: Final = 10_000  # events that may be stored whose numbers are kept for another try
PUBLISH_SLICE_EVENTS: Final = 128  # encoded in a row before they leave and other tasks of the loop get their turn
TIME_KEPT_SECONDS: Final = 0.0005  # by so much the time in an event may be behind the clock
SUBJECTS_KEPT_COUNT: Final = 4_096  # subjects of a publisher that are not put together anew for every event
PUBLISHER_SUBJECTS_MAX_COUNT: Final = 100_000  # numbers kept per exact subject; beyond it, numbering starts anew

# Handling
STREAM_POLL_SECONDS: Final = 1.0  # how often a stream that is not there is looked for
LAG_SAMPLE_SECONDS: Final = (
    0.001  # the lag is measured at most so often: looking at two clocks costs more than counting
)
READ_BATCH_RECORDS: Final = 128  # read at once: enough to amortise the call; 500 leave the processor's cache (measured)
HANDLE_SLICE_SECONDS: Final = 0.002  # handlers that never wait run so long before other tasks get their turn
LIVE_SEQUENCE_START: Final = 2**62  # best-effort events are numbered from here: above any sequence of a log
THREADS_LOST_MAX_COUNT: Final = 1_000  # hanging threads that are replaced; then the subscriber stands still instead
WATCHED_CALLS_COUNT: Final = 1_000  # written down, per partition, after an owner that died at once
POSITION_FLUSH_SECONDS: Final = 0.1  # how long a moved position may stay unwritten; a crash repeats that much
HORIZON_SECONDS: Final = 5.0  # how often the position of an idle subscription follows the log
STOP_GRACE_SECONDS: Final = 30.0  # a stopping service waits so long for handlers at work
MEMBER_BEAT_SECONDS: Final = 0.5  # how often instances of a subscriber say that they live
MEMBER_TIMEOUT_SECONDS: Final = 2.0  # an instance that says nothing for so long does not count for the sharing of work
REASON_MAX_CHARACTERS: Final = 2_000  # of a dead letter; some exceptions carry all the data that they are about
TRACEBACK_MAX_CHARACTERS: Final = 16_000  # of a dead letter; its end is kept, where the cause stands
LOOK_BACK_STEPS: Final = 16  # records looked at for the one before a first sight
LOOK_BACK_MAX_COUNT: Final = 1_000  # first sights waiting to be proven
LEASE_POLL_SECONDS: Final = 0.05  # a handler whose lease has run out looks again whether it came back
RETENTION_SWEEP_SECONDS: Final = 30.0  # how often old events are purged

# Resources
GID_MAX_CHARACTERS: Final = 199  # PostgreSQL refuses identifiers of prepared transactions of 200 bytes and more
RESOURCE_LOCK_SECONDS: Final = 2.0  # a branch waits so long for a lock: below every time-out of the protocol
RESOURCE_CONNECTIONS_COUNT: Final = 32  # branches at work at once in one process; PostgreSQL's default is 100 for all
RESOURCE_SPARE_CONNECTIONS_COUNT: Final = 4  # to finish branches when all others are pinned by branches at work
RESOURCE_CONNECT_SECONDS: Final = 5.0  # to wait for a connection, new or free
RESOURCE_STATEMENT_SECONDS: Final = 10.0  # for one statement of ours, such as PREPARE: a synced write on a busy disk
RESOURCE_FINISH_ATTEMPTS_COUNT: Final = 5  # of COMMIT PREPARED on a way that breaks; then the caller tries again later
RESOURCE_FINISH_PAUSE_SECONDS: Final = 0.05  # between two attempts: somebody else finishes it, or the way broke
PREPARED_FULL_RATIO: Final = 0.8  # of max_prepared_transactions: beyond it the preflight warns

# Transactions
PREPARE_REPEAT_SECONDS: Final = 1.0  # a lost prepare or vote costs so much; those who have voted answer again
CLOSE_REPEAT_SECONDS: Final = 1.0  # the same for counting
SILENCE_SECONDS: Final = 2.0  # a non-vital member that has not voted after so long is left out
DECISION_REPEAT_SECONDS: Final = 1.0  # longer than reports of the end are collected for; doubled each time
DECISION_REPEAT_MAX_SECONDS: Final = 30.0  # a member that is away for long asks by itself when it is back
JOURNAL_RETRY_SECONDS: Final = 0.5  # before the journal is asked again
DOUBT_ASK_SECONDS: Final = 0.5  # between the first questions; doubled each time
DOUBT_ASK_MAX_SECONDS: Final = 15.0
DOUBT_TRIES_COUNT: Final = 4  # questions without any answer before somebody who has not voted gives up
FINISH_RETRY_SECONDS: Final = 0.5  # a resource that cannot commit or roll back right now; doubled each time
FINISH_RETRY_MAX_SECONDS: Final = 30.0
COMPENSATION_ATTEMPTS_COUNT: Final = 8  # with the pauses: about a minute, then the operator decides
COMPENSATION_RETRY_SECONDS: Final = 0.5  # doubled each time
COMPENSATION_RETRY_MAX_SECONDS: Final = 30.0
STATUS_RELAY_SECONDS: Final = 5.0  # how often a process looks for statuses that another one left in the journal
STATUS_RETRY_SECONDS: Final = 0.2  # before a status is offered to the bus again; doubled each time
STATUS_RETRY_MAX_SECONDS: Final = 10.0
STATUS_APPEND_SECONDS: Final = 10.0  # for the bus to acknowledge a status: longer than a server takes to come back
STATUS_CLOSE_SECONDS: Final = 2.0  # a relay that stops tries so long to send the rest; others would do it
STATUS_BACK_STEPS_COUNT: Final = 64  # statuses of one transaction that are looked at: closings come singly
COMMITTED_FETCH_MAX_COUNT: Final = 64  # events of a status fetched one by one, at once; more are read by a cursor

# A manager in another process than the publisher
CONVERSATION_BEAT_SECONDS: Final = 0.5  # something is said at least so often, for the other side counts silence
CONVERSATION_REPEAT_SECONDS: Final = 0.1  # before what was not confirmed is said again; doubled each time
CONVERSATION_REPEAT_MAX_SECONDS: Final = 1.0
CONVERSATION_LOST_SECONDS: Final = 3.0  # without a word: six beats were missed
CONVERSATION_PACKET_MAX_COUNT: Final = 256  # items repeated in one packet: far below the largest message
MANAGER_ASK_SECONDS: Final = 0.3  # before services are asked again to manage a transaction
MANAGER_ANSWER_SECONDS: Final = 5.0  # for one of them to answer
MANAGER_UNUSED_SECONDS: Final = 10.0  # a transaction that nobody has begun by then was managed in vain
MANAGER_GRACE_SECONDS: Final = 2.0  # a service answers a commit by itself when its time is up; then we do

# Taking part
ENDED_COLLECT_SECONDS: Final = 0.005  # reports of the end are collected so long: many transactions in one packet
ENDED_PACKET_MAX_COUNT: Final = 256  # reports in one packet: far below the largest message
ENDED_KEPT_COUNT: Final = (
    4_096  # ended participations that can still answer a repeated decision, or a peer, from memory
)
DECISION_WAIT_SECONDS: Final = 2.0  # that a stopping participant waits for decisions; the next start asks for them
PARTICIPANT_BEAT_SECONDS: Final = 0.5  # how often an instance says that it lives: managers count silence in seconds
PARTICIPANT_SILENCE_SECONDS: Final = 1.5  # another instance acts for a member of a group after so long: three beats
PARTICIPANT_TURN_SECONDS: Final = 1.0  # how often rows of instances that died are looked for, and leases extended
FETCH_GRACE_SECONDS: Final = 0.05  # for an event that was counted and did not come yet, before the log is searched
FETCH_ATTEMPTS_COUNT: Final = 5  # looks into the log for an event that was counted; then it is gone
FETCH_PAUSE_SECONDS: Final = 0.2  # between two of them: an event may be acknowledged a moment before it can be read
PARKED_LOOK_SECONDS: Final = 2.0  # how often a parked compensation is looked for that the operator has released
CLOSE_LOG_ATTEMPTS_COUNT: Final = (
    5  # of closing a row that has ended; after that a recovery finds it, which is harmless
)
TRANSACTION_SECONDS: Final = 60.0  # the deadline of a transaction whose publisher names none
TRANSACTION_MAX_SECONDS: Final = 86_400.0  # members hold locks so long
TRANSACTION_ATTEMPTS_MAX_COUNT: Final = 100  # of a handler; all the while everybody's locks are held
COMMIT_TIMEOUT_SECONDS: Final = 30.0  # that commit() waits before it says what it waits for
OWN_FINISH_SECONDS: Final = 5.0  # that an abort waits for the publisher's own databases; they are finished anyway
MANAGER_CLOSE_SECONDS: Final = 2.0  # that a stopping manager waits for the ends of what is decided
MANAGER_WATCH_SECONDS: Final = 0.25  # how often a manager looks whose heartbeats are missing
MEMBER_LOST_SECONDS: Final = 3.0  # without a heartbeat: six were missed
RECORDS_KEPT_SECONDS: Final = 3_600.0  # of finished transactions, for `tutti tx show`; then only the outcome
OUTCOMES_KEPT_SECONDS: Final = 30 * 86_400.0  # a member that was away for longer needs an operator
KEYS_KEPT_COUNT: Final = 4_096  # public keys that are not decoded again for each signature
GROUP_KEPT_SECONDS: Final = 1.0  # a group's members are not looked up for each of its transactions

# The operator
OPERATOR_WAIT_SECONDS: Final = 5.0  # for an instance to carry out a word: it looks every second, and then finishes
OPERATOR_LEASE_SECONDS: Final = 30.0  # for a command that finishes a branch itself; it hands it back when it is done
WATCH_SECONDS: Final = 0.5  # how often `tutti tx watch` looks
GROUP_LISTEN_SECONDS: Final = 1.2  # for heartbeats of members: two beats
RECOVERY_ANSWER_SECONDS: Final = 2.0  # for whoever shares a journal to say how a transaction was decided
REAP_SECONDS: Final = 10.0  # how often prepared branches are looked for that nobody will finish
ROWS_KEPT_SECONDS: Final = 7 * 86_400.0  # of participants: a decision that is repeated so late can still be answered

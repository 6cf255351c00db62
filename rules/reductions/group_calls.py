"""Coalesced calls: several operations that one group call issues, and one completion for all of them.

Members keep the state `scheduled` for ever; only the entry that closes the group (`coalesced`, `ALLGATHER_coalesced`) is
updated (pytorch test/distributed/test_c10d_nccl.py, test_batched_send_recv). The facts stay as they were recorded; what follows
for the members is said here.
"""

from __future__ import annotations

# Operations with `state` and `call_order` of the whole group call: a member is done when the closing entry is, and all members
# have the number of the first one, because nothing orders them among each other. `call_size` counts the members, `closes` marks
# the closing entry.
OPERATIONS = """(
    SELECT o.* REPLACE (CASE WHEN g.closed THEN 'done' WHEN g.started AND o.state = 'pending' THEN 'started'
                             ELSE o.state END AS state),
           coalesce(g.first, o.record_id, o.locator) AS call_order,
           coalesce(g.members, 1) AS call_size, g.first IS NOT NULL AND o.kind LIKE '%coalesced' AS closes
    FROM operations o LEFT JOIN (
        SELECT source_id, pg_id, pg_name, is_p2p, group_call, min(coalesce(record_id, locator)) AS first,
               count(*) FILTER (kind NOT LIKE '%coalesced') AS members,
               bool_or(kind LIKE '%coalesced' AND state = 'done') AS closed,
               bool_or(kind LIKE '%coalesced' AND state = 'started') AS started
        FROM operations WHERE group_call IS NOT NULL GROUP BY ALL
    ) g ON g.source_id = o.source_id AND g.pg_id IS NOT DISTINCT FROM o.pg_id AND g.pg_name IS NOT DISTINCT FROM o.pg_name
       AND g.is_p2p = o.is_p2p AND g.group_call = o.group_call
)"""

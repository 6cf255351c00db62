"""Coalesced calls: several operations that one group call issues, and one completion for all of them.

Members have the state of the entry that closes the group (`coalesced`, `ALLGATHER_coalesced`): the reader of dumps sees to it.
"""

from __future__ import annotations

# Operations with the `call_order` of the whole group call: all members have the number of the first one, because nothing orders
# them among each other. `call_size` counts the members, `closes` marks the closing entry.
OPERATIONS = """(
    SELECT o.*, coalesce(g.first, o.record_id, o.locator) AS call_order,
           coalesce(g.members, 1) AS call_size, g.first IS NOT NULL AND o.kind LIKE '%coalesced' AS closes
    FROM operations o LEFT JOIN (
        SELECT source_id, pg_id, pg_name, is_p2p, group_call, min(coalesce(record_id, locator)) AS first,
               count(*) FILTER (kind NOT LIKE '%coalesced') AS members
        FROM operations WHERE group_call IS NOT NULL GROUP BY ALL
    ) g ON g.source_id = o.source_id AND g.pg_id IS NOT DISTINCT FROM o.pg_id AND g.pg_name IS NOT DISTINCT FROM o.pg_name
       AND g.is_p2p = o.is_p2p AND g.group_call = o.group_call
)"""

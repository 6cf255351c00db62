-- view: latest_call with the place of each call among all calls of its process; calls that one group call issued share it.
-- call_order: number of the call, or of the first member of its group call: nothing orders the members among each other
-- call_size: members of the group call, 1 for a call by itself
-- closes: the entry that closes a group call: it is no operation of its own
CREATE VIEW ordered_call AS
SELECT o.*, coalesce(g.first, o.record_id, o.locator) AS call_order,
       coalesce(g.members, 1) AS call_size, g.first IS NOT NULL AND o.kind LIKE '%coalesced' AS closes
FROM latest_call o LEFT JOIN (
    SELECT source_id, pg_id, pg_name, is_p2p, group_call, min(coalesce(record_id, locator)) AS first,
           count(*) FILTER (kind NOT LIKE '%coalesced') AS members
    FROM latest_call WHERE group_call IS NOT NULL GROUP BY ALL
) g ON g.source_id = o.source_id AND g.pg_id IS NOT DISTINCT FROM o.pg_id AND g.pg_name IS NOT DISTINCT FROM o.pg_name
   AND g.is_p2p = o.is_p2p AND g.group_call = o.group_call;

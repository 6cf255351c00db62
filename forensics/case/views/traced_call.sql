-- view: Collectives and messages of the newest profiler trace of each rank, with the columns of ordered_call.
-- family: trace; calls are numbered by their process group, where the trace has numbers
-- enqueued_ns: when the host made the call; where that is not known, when its kernel began
-- call_order: number of the call among those of its trace, in the order of the host
CREATE VIEW traced_call AS
SELECT o.* REPLACE (coalesce(o.entered_ns, o.device_start_ns) AS enqueued_ns), 'trace' AS family,
       row_number() OVER (PARTITION BY o.source_id, o.rank ORDER BY coalesce(o.entered_ns, o.device_start_ns), o.locator)
           AS call_order,
       1 AS call_size, false AS closes
FROM operations o JOIN (
    SELECT c.rank, arg_max(c.source_id, (coalesce(c.device_end_ns, c.returned_ns, c.entered_ns), c.source_id)) AS source_id
    FROM operations c JOIN sources s USING (source_id)
    WHERE s.kind IN ('kineto', 'nsight') AND c.rank IS NOT NULL GROUP BY c.rank
) newest USING (rank, source_id);

-- view: The calls that count, with all columns of operations: those of the newest dump of each rank, and those of shim logs.
-- family: recorder or shim; the numbers and the order of the two cannot be compared
CREATE VIEW latest_call AS
SELECT o.*, 'recorder' AS family FROM operations o JOIN capture USING (rank, snapshot)
UNION ALL BY NAME
SELECT o.* REPLACE (
           0 AS snapshot, o.entered_ns AS enqueued_ns, l.sequence AS sequence, '[[' || o.count || ']]' AS input_sizes,
           l.state AS state, l.record_id AS record_id
       ), 'shim' AS family
FROM operations o JOIN logged_calls l ON l.source_id = o.source_id AND l.locator = o.locator;

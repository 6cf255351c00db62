-- view: Where each rank stands in each communicator by its recorded collectives.
-- communicator: communicator
-- rank: rank
-- family: recorder or shim
-- entered: highest number that it issued
-- done: highest number that it finished, 0 before the first
-- pending: first number that it issued and did not finish; null without one
-- source_id: artefact of the pending call, else of the last one
-- locator: and its entry
CREATE VIEW position AS
SELECT communicator, rank, family, max(sequence) AS entered,
       coalesce(max(sequence) FILTER (state = 'done'), 0) AS done,
       min(sequence) FILTER (state <> 'done') AS pending,
       coalesce(arg_min(source_id, sequence) FILTER (state <> 'done'), arg_max(source_id, sequence)) AS source_id,
       coalesce(arg_min(locator, sequence) FILTER (state <> 'done'), arg_max(locator, sequence)) AS locator
FROM latest_call
WHERE NOT coalesce(is_p2p, false) AND kind NOT IN ('send', 'recv') AND communicator IS NOT NULL AND sequence >= 0
GROUP BY communicator, rank, family;

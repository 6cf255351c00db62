-- view: The newest Flight Recorder dump of each rank.
-- rank: rank that was dumped
-- snapshot: number of that dump, as in operations
CREATE VIEW capture AS
SELECT rank, max(snapshot) AS snapshot FROM operations WHERE rank IS NOT NULL AND snapshot IS NOT NULL GROUP BY rank;

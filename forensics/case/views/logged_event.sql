-- view: What logs tell of events, with all columns of log_events, the place of each line, and what came before it.
-- source: artefact and line, as evidence names them
-- path: artefact
-- after_cancel: whether the same log said before that the job was cancelled: then ranks are ended one after the other
CREATE VIEW logged_event AS
SELECT l.* REPLACE (coalesce(l.host, s.host) AS host), s.path, s.path || '#line=' || l.locator AS source,
       EXISTS (
           SELECT 1 FROM log_events c
           WHERE c.kind = 'job_cancelled' AND c.source_id = l.source_id AND c.locator < l.locator
       ) AS after_cancel
FROM log_events l JOIN sources s USING (source_id);

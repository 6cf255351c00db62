-- view: What was written of GPUs, NICs and hosts, with all columns of device_events and the place of each line.
-- source: artefact and line, as evidence names them
-- path: artefact
-- parser: reader of the artefact
-- captured_ns: when the artefact was captured (realtime, ns), if known
CREATE VIEW device_event AS
SELECT e.* REPLACE (coalesce(e.host, s.host) AS host), s.path, s.path || coalesce('#line=' || e.locator, '') AS source,
       s.parser, s.captured_ns
FROM device_events e JOIN sources s USING (source_id);

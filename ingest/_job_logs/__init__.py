"""Lines of the logs of a job, whatever format they stand in."""

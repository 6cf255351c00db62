"""Who comes late to collectives of a job that moves."""

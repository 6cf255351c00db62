"""Whether the job goes on."""

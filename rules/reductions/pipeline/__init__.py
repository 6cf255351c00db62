"""Where the ranks of a job stand in its parallel layout: configuration, axes of communicators, pipelines."""

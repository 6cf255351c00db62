"""Who belongs to the job, and what is known of its processes."""

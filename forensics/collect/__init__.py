"""Collection on the host of a stuck job: find the ranks, take what can be had, say what could not, leave the job alone."""

"""Collection from all hosts of a job at once: the launchers that a cluster has, and what each host sends back."""

"""Cheap readings of a living job, one after the other, and a collection by itself once the job stands still or became slow."""

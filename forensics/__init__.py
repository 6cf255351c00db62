"""Post-mortem forensics for hung or slow distributed training: which rank, which stage, why."""

__version__ = "0.1.0"

"""What an artefact gave, kept as Parquet where it was read, in place of the artefact."""

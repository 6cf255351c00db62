"""The passes of a pipeline-parallel iteration as a graph: what was to happen, what did not, what held it up."""

"""The steps of a training job as passes of microbatches: which call is of which, what was to happen, what held it up."""

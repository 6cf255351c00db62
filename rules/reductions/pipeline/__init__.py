"""What the calls of a rank were for: steps of the training, passes of microbatches, stages of a pipeline."""

"""What readers of several formats need: content, values, frames, packing."""

"""What the lesson computes: pure functions and data, without a page."""

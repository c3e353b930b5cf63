"""Data as people have it, checked, and packed so that reading never holds up training."""

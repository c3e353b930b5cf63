"""A static ranking site from submissions: read within limits, verified, checked and ranked."""

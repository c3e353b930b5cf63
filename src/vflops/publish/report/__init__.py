"""Pages: self-contained HTML that opens offline, made from the run folder alone."""

"""One run from settings to report: validate, estimate, start the jobs, conclude, resume."""

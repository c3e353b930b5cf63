"""Commands that publish results."""

"""Files that survive a crash: atomic writes, versioned documents, digests, locks."""

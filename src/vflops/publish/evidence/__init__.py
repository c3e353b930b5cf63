"""Evidence for others: archives, signatures and their verification."""

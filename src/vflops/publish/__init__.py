"""Results for readers: reports, exports, archives and rankings."""

"""M base models × P ranks: what each learns from, where it trains, what they are together."""

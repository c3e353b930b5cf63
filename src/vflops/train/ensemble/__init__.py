"""Ensembles: the sample of each base model, its predictions, and their aggregation."""

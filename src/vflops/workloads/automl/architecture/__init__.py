"""Architectures as data: layer graphs, their cost, morphs, and torch modules built from them."""

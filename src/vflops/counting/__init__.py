"""Counts the operations of a model: ``capture`` records its graph, ``conventions`` count them."""

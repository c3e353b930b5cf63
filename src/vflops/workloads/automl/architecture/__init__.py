"""Networks as data: a graph of layers, what it costs, how it is changed, and the module it is."""

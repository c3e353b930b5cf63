"""Studies of several runs: comparison, history, scaling, prediction, reproduction."""

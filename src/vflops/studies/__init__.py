"""Questions about several runs: comparison, history, scaling, prediction, reproduction."""

"""Jobs on PBS, LSF, Flux and other schedulers, through psij."""

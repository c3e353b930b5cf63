"""The back end of PBS, LSF and Flux, through psij."""

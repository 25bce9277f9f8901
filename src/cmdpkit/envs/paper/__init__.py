"""The instances of the paper on pruning, refinement and identification (arXiv 2309.15395)."""

"""The layer types of the paper's Table 1 that stand in for self-attention."""

"""The request that a model receives, projected from the state of a run, and how it is kept within the context
window."""

"""Memory: finding what fits, by meaning and by words; embedders; what the model is shown of it."""

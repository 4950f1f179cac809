"""Memory: search by meaning and by words, embedders, and the index of vectors."""

"""The vocabulary: frozen values that everything else speaks in. Imports nothing of ours."""

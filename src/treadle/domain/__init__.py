"""The vocabulary: frozen values that all other packages use. It imports nothing from them."""

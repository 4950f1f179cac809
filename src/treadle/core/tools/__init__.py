"""Tool calls: which ones run, in which order, and with which permission."""

"""Advice that several kinds of failed model calls end with."""

USUALLY_PASSES = "This usually passes."
SLOW_DOWN = "Fewer runs at a time, or a higher limit there, avoid it."

"""Advice that several kinds of failed model calls end with."""

USUALLY_PASSES = "This usually passes."

"""An old run through the code of today, without a network, a tool or a clock: what would it write otherwise?"""

"""What the operating system supplies: clock, ids, timers, threads and helper processes."""

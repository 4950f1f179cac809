"""What operators see: numbers, log lines and traces, all of it made from what is committed."""

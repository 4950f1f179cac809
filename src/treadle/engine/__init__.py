"""The run loop and its effects: model calls, tool calls, child runs, and the delivery of events to readers."""

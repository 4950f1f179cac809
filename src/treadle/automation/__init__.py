"""What happens by itself: schedules fire, hooks take what others send, events are sent to webhooks."""

"""OpenAI-compatible routes: agents as models, chat completions and responses."""

"""An agent offered as a model, to whatever speaks to OpenAI: its models, chat completions and responses."""

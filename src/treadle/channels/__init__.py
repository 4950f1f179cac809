"""Chat channels: people write to agents on Telegram, Matrix, Slack and by mail.

The core is the same for all platforms: access, conversations, messages in order and exactly once, answers at least
once. An adapter implements `ports.channel.Channel` for one platform."""

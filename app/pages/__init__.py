"""The pages beside the chat and the models: settings, diagnostics, shortcuts, about."""

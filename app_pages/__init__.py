"""The app's pages: one question each."""

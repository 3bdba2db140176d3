"""*Async and staleness*: three kinds of server on one problem, in numbers, charts and lanes."""

"""*Scaling*: curves along one axis, the map of winners, and pieces of a broadcast."""

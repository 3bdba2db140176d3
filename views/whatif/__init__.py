"""*What if…*: five kinds of trouble, before and after, and what the simulations say of each."""

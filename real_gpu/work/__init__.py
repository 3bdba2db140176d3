"""What a rank does in a run: a schedule's rows, a step's plan, and what must come out."""

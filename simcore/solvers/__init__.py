"""When messages leave and arrive: two solvers over one network of shared links.

``network`` numbers the links of a cluster. ``recurrence`` times schedules whose messages never
compete, a vector per step; ``events`` times everything else by discrete events, with ``flows``
sharing each link max-min fairly (``maxmin``) and ``rules`` or ``programs`` deciding what starts
when. ``simcore.engine`` chooses between them; nothing here knows of models or training.
"""

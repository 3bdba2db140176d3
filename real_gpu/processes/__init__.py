"""Ranks as processes: started here, in namespaces or by torchrun, driven and ended."""

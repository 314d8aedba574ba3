"""prove_faults -- an allreduce ring whose ranks pass results on before they have them."""

FAULTS = []
SMALLER = [("collectives/builders/allreduce_ring.c", "rb_write_dep(w, got, 0);", "(void)got;")]

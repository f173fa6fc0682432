"""How arrays travel between ranks: threads of one process, MPI."""

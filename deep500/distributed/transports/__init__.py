"""How arrays travel: the communicator, and one file per transport: a single rank, threads, MPI."""

"""The GPU paths: held by a stand-in where there is no card, and run by ``python -m tests.gpu`` where there is one."""

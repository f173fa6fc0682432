"""A recipe on workers of Ray, without Ray Train: ``python ray_ranks.py 2 recipes/digits_lenet.py batch_size=64``.

Every worker is a rank: it gets the variables that ``torch.distributed`` meets by, and runs the recipe's file. Ray
places the workers on the machines of the cluster at ``RAY_ADDRESS``, or starts one here. A worker that fails ends all.
"""

import os
import runpy
import socket
import sys
from pathlib import Path

import ray


@ray.remote(num_cpus=1)
class Rank:
    """A process of Ray that is one rank."""

    def address(self):
        """Where the ranks can meet: this machine, and a port that is free now."""
        with socket.socket() as free:
            free.bind(("", 0))
            return ray.util.get_node_ip_address(), free.getsockname()[1]

    def train(self, rank, ranks, address, recipe, words):
        """Run the recipe as this rank."""
        host, port = address
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR=host, MASTER_PORT=str(port))
        sys.argv = [recipe, *words]
        try:
            runpy.run_path(recipe, run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code == 0:
            import deep500

            deep500.distributed.world().close()
        return code


def main(ranks, recipe, *words):
    """Start the ranks, wait, and return an exit code."""
    ray.init(address=os.environ.get("RAY_ADDRESS"), include_dashboard=False, log_to_driver=True)
    workers = [Rank.remote() for _ in range(int(ranks))]
    address = ray.get(workers[0].address.remote())
    recipe = str(Path(recipe).resolve())
    waiting = [w.train.remote(number, int(ranks), address, recipe, words) for number, w in enumerate(workers)]
    try:
        while waiting:
            (done, *_), waiting = ray.wait(waiting)
            if code := ray.get(done):  # what a rank raised is raised here
                return code
        return 0
    finally:
        for worker in workers:
            ray.kill(worker)
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

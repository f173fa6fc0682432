"""Sign a sealed results folder with an SSH key, by OpenSSH's own tools: a later seal is then recognised as another.

The signature is of ``SHA256SUMS`` and lies beside it (``SHA256SUMS.sig``); it says who sealed these very bytes. Anybody
with ``ssh-keygen`` can check it without Deep500::

    ssh-keygen -Y verify -f SIGNERS -I NAME -n deep500 -s SHA256SUMS.sig < SHA256SUMS

``SIGNERS`` is a file of allowed signers (ssh-keygen(1)): ``NAME ssh-ed25519 AAAA...``, one a line.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from deep500.errors import ResultsError
from deep500.results.files import write_atomic
from deep500.results.sealing import SIGNATURE, SUMS

NAMESPACE = "deep500"
"""Binds a signature to its purpose: one that was made for something else does not pass."""

PATIENCE = 60.0
"""Seconds for ssh-keygen, which may ask an agent or a token."""


def sign(path: Path, key: Path) -> Path:
    """Sign the seal of a folder; returns the signature's path.

    Args:
        path: a sealed results folder.
        key: the private key, or the public one of a key that an agent holds.

    Raises:
        ResultsError: no seal, no key, no OpenSSH, or it refuses.
    """
    if not (path / SUMS).is_file():
        raise ResultsError(f"{path}: got no {SUMS}; expected a sealed run: name one, or finish it with --resume")
    write_atomic(path / SIGNATURE, signature_of((path / SUMS).read_bytes(), key, NAMESPACE))
    return path / SIGNATURE


def signature_of(text: bytes, key: Path, namespace: str) -> bytes:
    """Sign a text with an SSH key for a purpose; raises ResultsError as :func:`sign` does."""
    if not key.is_file():
        raise ResultsError(f"got no key {key}; expected an SSH key: make one with ssh-keygen -t ed25519 -f {key}")
    done = _ssh_keygen(["-Y", "sign", "-f", str(key), "-n", namespace], text)
    if done.returncode != 0 or not done.stdout:
        raise ResultsError(
            f"got no signature from ssh-keygen ({_last(done.stderr)}); expected one: check the key {key}"
        )
    return done.stdout


def key_name(key: Path) -> str | None:
    """The fingerprint of an SSH key; None where ssh-keygen does not tell it."""
    done = _ssh_keygen(["-l", "-f", str(key)])
    words = done.stdout.decode("utf-8", errors="replace").split()
    return words[1] if done.returncode == 0 and len(words) > 1 else None


def signer_of(path: Path, signers: Path) -> str:
    """Return who signed the seal of a folder, by a file of allowed signers.

    Raises:
        ResultsError: no signature, one by a key that the file does not list, or one of another seal.
    """
    if not signers.is_file():
        raise ResultsError(f"got no file {signers}; expected allowed signers: a line 'NAME ssh-ed25519 AAAA...' each")
    if not (path / SIGNATURE).is_file() or not (path / SUMS).is_file():
        raise ResultsError(f"{path}: got no {SIGNATURE}; expected a signed run: deep500 publish seal --sign KEY {path}")
    name = signer_of_text((path / SUMS).read_bytes(), (path / SIGNATURE).read_bytes(), signers, NAMESPACE)
    if name is not None:
        return name
    raise ResultsError(
        f"{path / SIGNATURE}: got a signature that is not one of {SUMS} by anybody in {signers}; expected one: the run "
        "was sealed anew after it was signed, or another key signed it"
    )


def signer_of_text(text: bytes, signature: bytes, signers: Path, namespace: str) -> str | None:
    """Who of the allowed signers signed a text for a purpose; None for nobody."""
    if not signers.is_file():
        raise ResultsError(f"got no file {signers}; expected allowed signers: a line 'NAME ssh-ed25519 AAAA...' each")
    with tempfile.NamedTemporaryFile() as file:
        file.write(signature)
        file.flush()
        about = ["-s", file.name]
        principals = _ssh_keygen(["-Y", "find-principals", "-f", str(signers), *about])
        names = principals.stdout.decode("utf-8", errors="replace").splitlines() if principals.returncode == 0 else []
        for name in names:
            words = ["-Y", "verify", "-f", str(signers), "-I", name, "-n", namespace, *about]
            if _ssh_keygen(words, text).returncode == 0:
                return name
    return None


def _ssh_keygen(words: list[str], text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise ResultsError("got no ssh-keygen on the path; expected OpenSSH 8.2 or newer: install openssh-client")
    try:
        return subprocess.run([program, *words], capture_output=True, timeout=PATIENCE, check=False, input=text)
    except subprocess.TimeoutExpired as error:
        raise ResultsError(
            f"got no answer from ssh-keygen in {PATIENCE:g} s; expected one: unlock the key, or use one without a "
            "passphrase or an agent"
        ) from error


def _last(text: bytes) -> str:
    lines = text.decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1][:120] if lines else "no message"

"""A signed attestation of a sealed run in the form of in-toto, and a time stamp of its seal by an authority (RFC 3161).

``attestation.dsse.json`` is an envelope (DSSE v1) around a statement (in-toto Statement v1) on all files of the seal,
whose predicate is SLSA's provenance v1: what was asked for, what it was made of (recipe, data, code), where and when it
ran. All of it is computed from the folder. The signature is OpenSSH's, of DSSE's pre-authentication encoding
(``DSSEv1 <length> <type> <length> <payload>``), so that a key in an agent or on a token will do::

    ssh-keygen -Y verify -f SIGNERS -I NAME -n dsse -s SIG < ENCODED

``SHA256SUMS.tsq`` asks a time stamp authority to say when the seal was there; its answer belongs beside it, as
``SHA256SUMS.tsr``. Both are made and read by ``openssl ts``.
"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from deep500.errors import ResultsError
from deep500.reading import declare, read_json, text, word
from deep500.results.files import read_json as read_of_run
from deep500.results.files import to_json, write_atomic
from deep500.results.record import MANIFEST, SUMMARY
from deep500.results.sealing import ATTESTATION, REQUEST, STAMP, SUMS, digest_of_file
from deep500.results.signing import PATIENCE, key_name, signature_of, signer_of_text

STATEMENT, PROVENANCE = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
PAYLOAD, BUILD = "application/vnd.in-toto+json", "urn:deep500:recipe-run:1"
NAMESPACE = "dsse"

NOT_PROVED = (
    "a signature says who sealed these bytes, not that the run was as they say (deep500 verify --replay trains again), "
    "nor when (a time stamp does), nor that no other run was left out (the ledger's head does, once it is published)"
)
"""Limits of a signature, printed beside each."""

_BASE64 = text("[A-Za-z0-9+/=]*", "base64")
FORMAT = declare(
    {"payloadType": word(PAYLOAD), "payload": _BASE64, "signatures": [{"keyid?": (str, None), "sig": _BASE64}]}
)


def statement_of(path: Path) -> dict[str, Any]:
    """The statement on a sealed run, from its files.

    Raises:
        ResultsError: no seal, or no run of a recipe.
    """
    if not (path / SUMS).is_file():
        raise ResultsError(f"{path}: got no {SUMS}; expected a sealed run: name one, or finish it with --resume")
    manifest, summary = read_of_run(path / MANIFEST), read_of_run(path / SUMMARY)
    lines = [line.partition("  ") for line in (path / SUMS).read_text(encoding="utf-8").splitlines()]
    files = {SUMS: digest_of_file(path / SUMS), **{name: digest for digest, _, name in lines}}
    data = manifest.get("data") or {}
    made_of = {f"data/{half}": {"sha256": facts["digest"]} for half, facts in data.items()}
    if manifest.get("recipe_sha256"):
        made_of["recipe"] = {"sha256": manifest["recipe_sha256"]}
    environment = manifest.get("environment") or {}
    commit = (environment.get("git") or {}).get("commit")
    if commit:
        made_of["code"] = {"gitCommit": commit}
    builder = f"urn:deep500:environment:sha256:{manifest.get('environment_sha256')}"
    times = {"startedOn": manifest["started"], "finishedOn": summary.get("finished")}
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in files.items()],
        "predicateType": PROVENANCE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD,
                "externalParameters": {name: manifest.get(name) for name in ("recipe", "argv", "division")},
                "internalParameters": {"resolved": manifest["resolved"], "seeds": manifest["seeds"]},
                "resolvedDependencies": [{"name": name, "digest": digest} for name, digest in made_of.items()],
            },
            "runDetails": {
                "builder": {"id": builder, "version": {"deep500": (environment.get("versions") or {}).get("deep500")}},
                "metadata": {"invocationId": path.resolve().name, **times},
            },
        },
    }


def encoded(payload: bytes, kind: str = PAYLOAD) -> bytes:
    """DSSE's pre-authentication encoding: what a signature is of.

    Example:
        >>> encoded(b"hello world", "http://example.com/HelloWorld")
        b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    return b" ".join([b"DSSEv1", str(len(kind)).encode(), kind.encode(), str(len(payload)).encode(), payload])


def attest(path: Path, key: Path) -> Path:
    """Write the attestation of a sealed run, signed with an SSH key; returns its path.

    Raises:
        ResultsError: no seal, no key, no OpenSSH, or it refuses.
    """
    payload = to_json(statement_of(path), indent=None).encode("utf-8")
    signature = {"keyid": key_name(key), "sig": _in_base64(signature_of(encoded(payload), key, NAMESPACE))}
    envelope = {"payloadType": PAYLOAD, "payload": _in_base64(payload), "signatures": [signature]}
    write_atomic(path / ATTESTATION, to_json(envelope) + "\n")
    return path / ATTESTATION


def attested_by(path: Path, signers: Path) -> str:
    """Return who signed the attestation of a run, by a file of allowed signers.

    Raises:
        ResultsError: it has none, one of other bytes than the folder's, or one by somebody whom the file does not list.
    """
    envelope = read_json(path / ATTESTATION, FORMAT)
    payload = base64.b64decode(envelope["payload"])
    if payload != to_json(statement_of(path), indent=None).encode("utf-8"):
        raise ResultsError(
            f"{path / ATTESTATION}: got a statement on another run; expected what follows from this folder: it was "
            "sealed anew after it was attested"
        )
    for signature in envelope["signatures"]:
        name = signer_of_text(encoded(payload), base64.b64decode(signature["sig"]), signers, NAMESPACE)
        if name is not None:
            return name
    raise ResultsError(f"{path / ATTESTATION}: got no signature by anybody in {signers}; expected one: ask who signed")


def request_time_stamp(path: Path) -> Path:
    """Write what to send to a time stamp authority; returns its path.

    Raises:
        ResultsError: no seal, or no OpenSSL.
    """
    if not (path / SUMS).is_file():
        raise ResultsError(f"{path}: got no {SUMS}; expected a sealed run: name one, or finish it with --resume")
    _openssl("ts", "-query", "-data", str(path / SUMS), "-sha256", "-cert", "-out", str(path / REQUEST))
    return path / REQUEST


def stamped_at(path: Path, authority: Path) -> str:
    """Return when an authority saw the seal of a run, in its words.

    Args:
        path: the run, with the authority's answer as ``SHA256SUMS.tsr``.
        authority: certificates (PEM) that are trusted.

    Raises:
        ResultsError: no answer, one for another seal, or by another authority.
    """
    if not (path / STAMP).is_file():
        raise ResultsError(f"{path}: got no {STAMP}; expected an authority's answer to {REQUEST}: put it there")
    answer = ["-in", str(path / STAMP)]
    _openssl("ts", "-verify", "-data", str(path / SUMS), *answer, "-CAfile", str(authority))
    moment = re.search(r"Time stamp: (.*)", _openssl("ts", "-reply", *answer, "-text"))
    if moment is None:
        raise ResultsError(f"{path / STAMP}: got no time in it; expected one: ask the authority again")
    return moment[1].strip()


def _openssl(*words: str) -> str:
    """Return what OpenSSL prints; raises ResultsError where it is not there, or refuses."""
    program = shutil.which("openssl")
    if program is None:
        raise ResultsError("got no openssl on the path; expected OpenSSL 1.1 or newer: install openssl")
    with tempfile.TemporaryFile() as nothing:
        done = subprocess.run([program, *words], capture_output=True, timeout=PATIENCE, check=False, stdin=nothing)
    if done.returncode:
        lines = (done.stderr or done.stdout).decode("utf-8", errors="replace").strip().splitlines()
        message = next((line for line in lines if "error" in line.lower()), "no message")[:160]
        raise ResultsError(
            f"got an error of openssl ts ({message}); expected it to do: check the files that it was given"
        )
    return done.stdout.decode("utf-8", errors="replace")


def _in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")

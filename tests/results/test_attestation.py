"""Attestations: in-toto's statement in DSSE's envelope, signed by OpenSSH; time stamps by an authority of our own."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from deep500 import cli
from deep500.errors import ResultsError
from deep500.recipe import run_recipe
from deep500.results.attestation import attest, attested_by, encoded, request_time_stamp, stamped_at, statement_of
from deep500.results.sealing import ATTESTATION, REQUEST, STAMP, SUMS, digest_of_file, seal
from deep500.results.verify import verify
from tests.recipes.common import quick
from tests.results.test_signing import keys  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None or shutil.which("openssl") is None, reason="needs OpenSSH and OpenSSL"
)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A run of a recipe."""
    out = tmp_path_factory.mktemp("honest")
    return Path(run_recipe(*quick("reference", epochs=1), argv=["--quiet", "--out", str(out)]).path)


@pytest.fixture
def run(honest, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(honest.parent, tmp_path / "copy")) / honest.name


def test_the_statement_is_in_toto_s_and_names_every_file_and_what_it_was_made_of(run):
    statement = statement_of(run)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    digests = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    assert set(digests) >= {SUMS, "manifest.json", "report.html", "stats.json", "metrics.jsonl"}
    assert all(digest_of_file(run / name) == digest for name, digest in digests.items())
    manifest = json.loads((run / "manifest.json").read_text())
    build = statement["predicate"]["buildDefinition"]
    made_of = {part["name"]: part["digest"] for part in build["resolvedDependencies"]}
    assert made_of["data/train"] == {"sha256": manifest["data"]["train"]["digest"]}
    assert build["internalParameters"]["seeds"] == manifest["seeds"] and build["buildType"].startswith("urn:")
    assert manifest["environment_sha256"] in statement["predicate"]["runDetails"]["builder"]["id"]


def test_the_encoding_is_the_one_of_the_specification():
    assert encoded(b"hello world", "http://example.com/HelloWorld") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_openssh_alone_checks_the_envelope(run, keys, tmp_path, capsys):  # noqa: F811
    assert cli.main(["publish", "seal", str(run), "--sign", str(keys / "ada")]) == 0
    assert "not that the run was as they say" in capsys.readouterr().out and verify(run) == []
    envelope = json.loads((run / ATTESTATION).read_text())
    payload, (signature,) = base64.b64decode(envelope["payload"]), envelope["signatures"]
    assert json.loads(payload)["predicateType"].startswith("https://slsa.dev/") and "SHA256:" in signature["keyid"]
    (tmp_path / "sig").write_bytes(base64.b64decode(signature["sig"]))
    kind = envelope["payloadType"]
    text = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    words = ["-f", str(keys / "signers"), "-I", "ada@example.org", "-n", "dsse", "-s", str(tmp_path / "sig")]
    assert subprocess.run(["ssh-keygen", "-Y", "verify", *words], input=text, check=False).returncode == 0
    assert cli.main(["verify", str(run), "--signers", str(keys / "signers")]) == 0
    said = capsys.readouterr().out
    assert "attested by ada@example.org" in said and "not that the run was as they say" in said


def test_another_run_or_another_key_is_named(run, keys, capsys):  # noqa: F811
    attest(run, keys / "eve")
    with pytest.raises(ResultsError, match="no signature by anybody"):
        attested_by(run, keys / "signers")
    attest(run, keys / "ada")
    assert attested_by(run, keys / "signers") == "ada@example.org"
    envelope = json.loads((run / ATTESTATION).read_text())
    (run / "note.txt").write_text("a better result")
    seal(run)
    with pytest.raises(ResultsError, match="sealed anew after it was attested"):
        attested_by(run, keys / "signers")
    (run / ATTESTATION).write_text(json.dumps({**envelope, "payload": 7}))
    with pytest.raises(ResultsError, match="payload"):
        attested_by(run, keys / "signers")
    (run / SUMS).unlink()
    with pytest.raises(ResultsError, match="expected a sealed run"):
        statement_of(run)
    assert cli.main(["publish", "seal", str(run)]) == 2 and "add one" in capsys.readouterr().err


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A time stamp authority: its certificate, and a function that answers."""
    folder = tmp_path_factory.mktemp("authority")
    about = "[tsa]\ndefault_tsa = t\n[t]\nserial = serial\nsigner_digest = sha256\ndefault_policy = 1.2.3\n"
    about += "digests = sha256\naccuracy = secs:1\n[x]\nextendedKeyUsage = critical,timeStamping\n"
    (folder / "tsa.cnf").write_text(about + "[req]\ndistinguished_name = d\n[d]\n")
    (folder / "serial").write_text("01")
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-config", folder / "tsa.cnf"]
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=clock", "-extensions", "x", *files)

    def answer(run):
        words = ["-queryfile", run / REQUEST, "-signer", folder / "cert.pem", "-inkey", folder / "key.pem"]
        command = ["openssl", "ts", "-reply", "-config", folder / "tsa.cnf", *words, "-out", run / STAMP]
        subprocess.run(list(map(str, command)), check=True, capture_output=True, cwd=folder)

    return folder / "cert.pem", answer


def test_a_time_stamp_is_of_this_seal_and_by_this_authority(run, authority, tmp_path, capsys):
    certificate, answer = authority
    with pytest.raises(ResultsError, match="put it there"):
        stamped_at(run, certificate)
    assert cli.main(["publish", "seal", str(run), "--time-stamp"]) == 0 and "RFC 3161" in capsys.readouterr().out
    answer(run)
    assert verify(run) == [] and "GMT" in stamped_at(run, certificate)
    assert cli.main(["verify", str(run), "--authority", str(certificate)]) == 0
    assert "by a time stamp" in capsys.readouterr().out
    other = ["-keyout", tmp_path / "k.pem", "-out", tmp_path / "c.pem"]
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=other", *other)
    with pytest.raises(ResultsError, match="openssl ts"):
        stamped_at(run, tmp_path / "c.pem")
    (run / "note.txt").write_text("a better result")
    seal(run)
    with pytest.raises(ResultsError, match="openssl ts"):
        stamped_at(run, certificate)
    assert cli.main(["verify", str(run), "--authority", str(certificate)]) == 1
    (run / SUMS).unlink()
    with pytest.raises(ResultsError, match="expected a sealed run"):
        request_time_stamp(run)

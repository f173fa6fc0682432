"""A signature tells a new seal from the first, with OpenSSH's own tool on the other side."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from deep500 import cli
from deep500.errors import ResultsError
from deep500.results.signing import sign, signer_of
from deep500.results.verify import SIGNATURE, SUMS, seal, verify
from tests.results.report_cases import finished

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Two keys, and a file of allowed signers with the first."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ada", "eve"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
        subprocess.run(words, check=True)
    (folder / "signers").write_text(f"ada@example.org {(folder / 'ada.pub').read_text()}")
    return folder


@pytest.fixture
def run(tmp_path):
    return finished(tmp_path, samples=30, seeds=1).path


def test_who_signed_is_told_and_the_folder_still_verifies(run, keys, capsys):
    assert cli.main(["publish", "seal", str(run), "--sign", str(keys / "ada")]) == 0
    assert verify(run) == [] and signer_of(run, keys / "signers") == "ada@example.org"
    assert cli.main(["verify", str(run), "--signers", str(keys / "signers")]) in (0, 1)
    assert "no signature" not in capsys.readouterr().out
    words = ["-f", str(keys / "signers"), "-I", "ada@example.org", "-n", "deep500", "-s", str(run / SIGNATURE)]
    own = subprocess.run(["ssh-keygen", "-Y", "verify", *words], input=(run / SUMS).read_bytes(), check=False)
    assert own.returncode == 0


def test_a_new_seal_or_another_key_is_found(run, keys, capsys):
    sign(run, keys / "ada")
    (run / "note.txt").write_text("a better result")
    seal(run)
    assert verify(run) == []  # the seal fits, the signature does not
    with pytest.raises(ResultsError, match="sealed anew after it was signed"):
        signer_of(run, keys / "signers")
    sign(run, keys / "eve")
    with pytest.raises(ResultsError, match="not one of SHA256SUMS by anybody"):
        signer_of(run, keys / "signers")
    assert cli.main(["verify", str(run), "--signers", str(keys / "signers")]) == 1
    assert "another key signed it" in capsys.readouterr().out


def test_what_is_missing_is_named(run, keys, tmp_path, monkeypatch):
    with pytest.raises(ResultsError, match="expected a signed run"):
        signer_of(run, keys / "signers")
    with pytest.raises(ResultsError, match="expected allowed signers"):
        signer_of(run, tmp_path / "nobody")
    with pytest.raises(ResultsError, match="make one with ssh-keygen"):
        sign(run, tmp_path / "nothing")
    with pytest.raises(ResultsError, match="expected a sealed run"):
        sign(tmp_path, keys / "ada")
    (tmp_path / "no key").write_text("words")
    with pytest.raises(ResultsError, match="check the key"):
        sign(run, tmp_path / "no key")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ResultsError, match="install openssh-client"):
        sign(run, keys / "ada")


def test_an_altered_folder_is_not_signed(run, keys):
    (run / "metrics.jsonl").write_text("")
    assert cli.main(["publish", "seal", str(run), "--sign", str(keys / "ada")]) == 1 and not (run / SIGNATURE).exists()

"""The kubeconfig of a command, and what may be given in its place."""

from pathlib import Path

import pytest

from flowmesh_cli.cluster.kubeconfig import TOKEN_VARIABLE, Kubeconfig
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode


def test_a_server_without_a_token_and_a_kubeconfig_asks_for_the_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    server = Target(server="https://there")
    with pytest.raises(CliError, match="the server needs a token") as caught:
        Kubeconfig(server)
    assert (caught.value.where, caught.value.code) == ("--server https://there", ExitCode.USAGE)
    assert f"set {TOKEN_VARIABLE}" in caught.value.remedy
    monkeypatch.setenv(TOKEN_VARIABLE, "token")
    assert Kubeconfig(server).token(renewed=False) == "token"

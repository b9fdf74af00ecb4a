"""The files of the deployment guides: read as the programs read them, and run where that is possible."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from slicelock.embedded import EmbeddedServer
from slicelock.local_agent import LocalAgent
from slicelock.settings import Settings
from slicelock.sim import Record
from tests.support.acl_server import DEPLOY, ROOT
from tests.support.kubernetes import complaints

SCRIPTS = sorted(DEPLOY.rglob("*.sh"))
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if "values" not in path.name)
GUIDES = {"bare-metal.md", "slurm.md", "kubernetes.md", "containers.md"}


def test_every_file_is_told_of_on_a_page() -> None:
    pages = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    pages += (ROOT / "docker-compose.yml").read_text() + (DEPLOY / "docker/Dockerfile").read_text()
    pages += "".join(path.read_text() for path in DEPLOY.rglob("*.sh"))
    for path in DEPLOY.rglob("*"):
        if path.is_file() and "secrets" not in path.parts:
            assert path.name.removesuffix(".dockerignore") in pages, path


@pytest.mark.parametrize("guide", sorted(GUIDES))
def test_each_guide_begins_with_what_differs_from_place_to_place(guide: str) -> None:
    first = (ROOT / "docs/how-to" / guide).read_text().split("\n## ")[0]
    for words in ("How two jobs come to see the same GPU here", "Host memory", "Environment of the jobs"):
        assert words.lower() in " ".join(first.split()).lower(), f"{guide} does not say: {words}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_understood_by_their_shell(script: Path) -> None:
    shell = "bash" if "bash" in script.read_text().splitlines()[0] else "sh"
    done = subprocess.run([shell, "-n", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# ---------------------------------------------------------------- systemd


def unit() -> configparser.ConfigParser:
    class Repeated(dict[str, Any]):
        """Options may be given several times: the values, one a line."""

        def __setitem__(self, name: str, value: Any) -> None:
            if isinstance(value, list) and isinstance(self.get(name), list):
                value = [*self[name], *value]
            super().__setitem__(name, value)

    parser = configparser.ConfigParser(dict_type=Repeated, strict=False, interpolation=None)  # type: ignore[arg-type]
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(DEPLOY / "systemd/slicelock-agent.service")
    return parser


def test_the_unit_lets_the_agent_do_its_work() -> None:
    service = unit()["Service"]
    rights = service["CapabilityBoundingSet"].split()
    assert {"CAP_SYS_PTRACE", "CAP_KILL"} <= set(rights)
    for name in ("PrivateDevices", "PrivateTmp", "PrivateUsers", "MemoryDenyWriteExecute"):
        assert service[name] == "no", f"{name} would be in the agent's way"
    assert service["ProtectProc"] == "default"
    assert "PrivatePIDs" not in service and "SystemCallFilter" not in service
    assert service["NoNewPrivileges"] == "yes" and service["Restart"] == "always"
    assert service["KillMode"] != "control-group"
    assert unit()["Unit"]["StartLimitIntervalSec"] == "0", "it would be given up after five failures"
    assert "SLICELOCK_STATE_DIR=/var/lib/slicelock" in service["Environment"]


@pytest.mark.parametrize("name", ["slicelock-agent.service", "slicelock-agent-user.service"])
def test_systemd_understands_the_unit(name: str, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is missing")
    text = (DEPLOY / "systemd" / name).read_text()
    copy = tmp_path / "slicelock-agent.service"
    copy.write_text(text.replace("/opt/slicelock/bin/slicelock-agent", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "slicelock-agent" not in done.stderr, done.stderr


# ---------------------------------------------------------------- Slurm

SRUN = """#!/bin/bash
# Takes srun's options, and runs the command as a task of the next step.
while [[ $1 == -* ]]; do shift; done
step=0
until mkdir "$STEPS/$step" 2>/dev/null; do step=$((step + 1)); done
SLURM_STEP_ID=$step SLURM_PROCID=0 SLURM_NTASKS=1 SLURMD_NODENAME=here exec "$@"
"""


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, str]:
    """The programs of a node of a cluster, as far as the scripts call them; what they did is in `called`."""
    programs, ours, steps = tmp_path / "bin", tmp_path / "opt", tmp_path / "steps"
    files = {
        programs / "srun": SRUN,
        programs / "systemctl": f'#!/bin/sh\necho systemctl "$@" >>{tmp_path}/called\n[ "$1" = start ]\n',
        programs / "logger": f'#!/bin/sh\necho logger "$@" >>{tmp_path}/called\n',
        ours / "slicelock": f"""#!/bin/sh
            echo slicelock "$@" >>{tmp_path}/called
            exec {sys.executable} -m slicelock "$@"
        """,
        ours / "slicelock-agent": f'#!/bin/sh\nexec {sys.executable} -m slicelock_agent "$@"\n',
    }
    for folder in (programs, ours, steps):
        folder.mkdir()
    for file, text in files.items():
        file.write_text(text)
        file.chmod(0o755)
    (tmp_path / "agent.env").write_text("SLICELOCK_REDIS_URL=redis://here\nSLICELOCK_POOL=p\n")
    (tmp_path / "password").write_text("none\n")
    return {
        **os.environ,
        "PATH": f"{programs}:{ours}:{os.environ['PATH']}",
        "SLICELOCK_BIN": str(ours),
        "STEPS": str(steps),
        "TMPDIR": str(tmp_path),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_NAME": "my job",
        "SLICELOCK_SIM_DIR": str(tmp_path / "sim"),
        "SLICELOCK_ENV": str(tmp_path / "agent.env"),
        "PYTHONPATH": f"{ROOT}:{ROOT}/agent",
    }


@pytest.mark.slow
@pytest.mark.one_server
def test_two_experiments_in_one_allocation_take_turns(
    server: EmbeddedServer, cluster: dict[str, str], tmp_path: Path
) -> None:
    with EmbeddedServer(binary=server.binary) as own:
        light = "--steps 15 --batch 128 --epochs 1"
        job = f"{sys.executable} {ROOT}/examples/digits_grpo.py --slice trainers {light} --seed"
        done = subprocess.run(
            ["bash", DEPLOY / "slurm/two_jobs.sh", f"{job} 1", f"{job} 2"],
            env={**cluster, "SLICELOCK_REDIS_URL": own.url, "DEVICES": "sim:0"},
            capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    seen = Record.load(tmp_path / "sim/0.record.jsonl")
    owners = [run for run, _ in groupby(use.run for use in seen.uses)]
    assert seen.violations() == []
    assert set(owners) == {"slurm-7-1", "slurm-7-2"}
    assert len(owners) > 4
    assert "Forgot trainers" in done.stdout + done.stderr


@pytest.mark.one_server
def test_the_prolog_sees_to_the_agent_and_the_epilog_ends(
    server: EmbeddedServer, cluster: dict[str, str], tmp_path: Path
) -> None:
    with EmbeddedServer(binary=server.binary) as own:
        settings = {
            "SLICELOCK_REDIS_URL": own.url,
            "SLICELOCK_REDIS_USER": "default",
            "SLICELOCK_NODE": "here",
        }
        (tmp_path / "agent.env").write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
        bare = f"{tmp_path / 'bin'}:/usr/bin:/bin"  # Slurm gives these scripts no search path
        env = {**cluster, "SLURM_JOB_GPUS": "0", "PATH": bare,
               "SLICELOCK_REDIS_PASSWORD_FILE": str(tmp_path / "password")}  # fmt: skip

        def run(name: str, **more: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["bash", DEPLOY / "slurm" / name], env={**env, **more}, capture_output=True, text=True,
                check=False, timeout=60, cwd=tmp_path,
            )  # fmt: skip

        assert run("prolog.sh", SLURM_JOB_GPUS="", CUDA_VISIBLE_DEVICES="").returncode == 0
        assert not (tmp_path / "called").exists(), "a job without GPUs is none of its business"
        failed = run("prolog.sh")
        assert failed.returncode == 1 and "is not heard of" in failed.stderr, failed.stderr
        assert "systemctl start slicelock-agent.service" in (tmp_path / "called").read_text()
        with LocalAgent({"gpu0": "sim:0"}, env | settings | {"SLICELOCK_STATE_DIR": str(tmp_path)}):
            found = run("prolog.sh")
            assert found.returncode == 0, found.stderr
        assert run("epilog.sh").returncode == 0
        assert "slicelock status" in (tmp_path / "called").read_text()
        service = unit()["Service"]["ExecStart"].split()[0]
        assert f"${{SLICELOCK_BIN:-{Path(service).parent}}}" in (DEPLOY / "slurm/prolog.sh").read_text()


def test_the_task_prolog_prints_settings(
    cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Redis and the pool are the agent's."""
    env = {**cluster, "SLURM_STEP_ID": "3", "SLICELOCK_CLIENT_PASSWORD": str(tmp_path / "password")}
    said = subprocess.run(
        ["bash", DEPLOY / "slurm/task_prolog.sh"], env=env, capture_output=True, text=True, check=True
    )
    for line in said.stdout.splitlines():
        export, _, assignment = line.partition(" ")
        name, _, value = assignment.partition("=")
        assert export == "export"
        monkeypatch.setenv(name, value)
    settings = Settings.load()
    assert (settings.job, settings.run, settings.redis_user) == ("slurm-my-job", "slurm-7-3", "client")
    assert (settings.url(), settings.pool) == ("redis://here", "p")


def test_the_task_prolog_leaves_the_job_its_name(cluster: dict[str, str]) -> None:
    said = subprocess.run(
        ["bash", DEPLOY / "slurm/task_prolog.sh"], env={**cluster, "SLICELOCK_JOB": "baseline"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "export SLICELOCK_JOB=baseline\n" in said.stdout


# ---------------------------------------------------------------- Kubernetes


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_kubernetes_has_these_types_and_fields(path: Path) -> None:
    for thing in yaml.safe_load_all(path.read_text()):
        assert complaints(thing) == []


def test_a_wrong_field_would_be_found() -> None:
    thing = yaml.safe_load((DEPLOY / "kubernetes/claim.yaml").read_text())
    thing["spec"]["devices"]["requests"][0]["exactly"]["number"] = 8
    thing["spec"]["devices"]["requests"][0]["name"] = 5
    assert len(complaints(thing)) == 2


def test_agents_see_every_process_and_ask_nothing_of_kubernetes() -> None:
    _, agent = yaml.safe_load_all((DEPLOY / "kubernetes/agent.yaml").read_text())
    pod = agent["spec"]["template"]["spec"]
    assert pod["hostPID"] is True and pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod
    (container,) = pod["containers"]
    assert "livenessProbe" not in container
    assert "password" not in str(container["env"]).replace("password'", "").replace(
        "REDIS_PASSWORD_FILE", ""
    ).lower().replace("redis_password", "")


def test_jobs_share_the_claim_that_there_is() -> None:
    claim = yaml.safe_load((DEPLOY / "kubernetes/claim.yaml").read_text())
    pod = yaml.safe_load((DEPLOY / "kubernetes/job.yaml").read_text())["spec"]["template"]["spec"]
    (shared,) = pod["resourceClaims"]
    assert shared["resourceClaimName"] == claim["metadata"]["name"]
    assert pod["containers"][0]["resources"]["claims"] == [{"name": shared["name"]}]


def test_the_chart_is_told_not_to_forget() -> None:
    values = yaml.safe_load((DEPLOY / "kubernetes/redis-values.yaml").read_text())
    assert values["redis"]["config"]["maxmemory-policy"] == "noeviction"
    assert values["replicas"] == 3 and values["sentinel"]["quorum"] == 2

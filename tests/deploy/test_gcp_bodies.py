"""What Google Cloud is asked for: who may reach whom, which VMs are made and with which rights; and what is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from formats.settings import checked
from primitives.errors import UserError
from seep.deploy.gcp import bodies
from seep.deploy.gcp.settings import GcpSettings
from seep.deploy.providers import read_settings

ROOT = Path(__file__).parent.parent.parent
RULES = {"members": bodies.members_rule, "admin": bodies.admin_rule}
TEMPLATES = {"master": bodies.master_template, "worker": bodies.worker_template}


def settings(**more: Any) -> GcpSettings:
    content = {"name": "demo", "project": "p-1", "environment": str(ROOT / "requirements.lock"), **more}
    return checked(GcpSettings, content, "gcp")


def metadata(template: bodies.Json) -> dict[str, str]:
    return {each["key"]: each["value"] for each in template["properties"]["metadata"]["items"]}


def test_only_members_and_the_admin_range_reach_a_vm() -> None:
    chosen = settings(admin="198.51.100.7/32", admin_ports=[22, 8080])
    members, admin = (make(chosen) for make in RULES.values())
    assert members["sourceTags"] == members["targetTags"] == admin["targetTags"] == ["seep-demo"]
    assert "sourceRanges" not in members
    assert admin["sourceRanges"] == ["198.51.100.7/32"]
    assert admin["allowed"] == [{"IPProtocol": "tcp", "ports": ["22", "8080"]}]
    assert all(make(chosen)["properties"]["tags"] == {"items": ["seep-demo"]} for make in TEMPLATES.values())


def test_no_vm_has_credentials_unless_the_master_is_given_an_account() -> None:
    assert all("email" not in str(make(settings())) for make in TEMPLATES.values())
    chosen = settings(service_account="pool@p-1.iam.gserviceaccount.com")
    (account,) = bodies.master_template(chosen)["properties"]["serviceAccounts"]
    assert account["email"] == "pool@p-1.iam.gserviceaccount.com"
    assert "serviceAccounts" not in bodies.worker_template(chosen)["properties"]


def test_only_workers_are_spot_and_a_spot_worker_is_deleted_when_taken_away() -> None:
    chosen = settings(machines={"spot": True})
    scheduling = bodies.worker_template(chosen)["properties"]["scheduling"]
    assert (scheduling["provisioningModel"], scheduling["instanceTerminationAction"]) == ("SPOT", "DELETE")
    assert "scheduling" not in bodies.master_template(chosen)["properties"]
    assert "scheduling" not in bodies.worker_template(settings())["properties"]


@pytest.mark.parametrize("role", TEMPLATES)
def test_vms_and_their_disks_carry_the_labels_of_cluster_role_and_user(role: str) -> None:
    properties = TEMPLATES[role](settings(tags={"team": "streams"}))["properties"]
    expected = {"team": "streams", "seep-cluster": "demo", "seep-role": role}
    assert properties["labels"].items() >= expected.items()
    assert properties["disks"][0]["initializeParams"]["labels"] == expected
    assert properties["disks"][0]["autoDelete"] is True


def test_a_rule_has_its_labels_in_its_description() -> None:
    assert "team=streams, seep-cluster=demo" in bodies.members_rule(settings(tags={"team": "streams"}))["description"]


def test_machine_disk_image_and_network_are_those_of_the_settings() -> None:
    chosen = settings(
        zone="us-central1-a",
        machines={"worker": "c3-standard-4", "nodes_per_worker": 4},
        image_project="mine",
        image="family/ready",
        disk_gb=50,
        network="vpc",
        subnetwork="streams",
        external_ip=False,
    )
    properties = bodies.worker_template(chosen)["properties"]
    assert properties["machineType"] == "c3-standard-4"
    assert properties["disks"][0]["initializeParams"]["sourceImage"] == "projects/mine/global/images/family/ready"
    assert properties["disks"][0]["initializeParams"]["diskSizeGb"] == "50"
    assert properties["networkInterfaces"] == [
        {"network": "global/networks/vpc", "subnetwork": "regions/us-central1/subnetworks/streams"}
    ]
    assert metadata(bodies.worker_template(chosen))["seep-cores"] == "4"


@pytest.mark.parametrize("role", TEMPLATES)
def test_the_start_up_script_is_bash_joins_the_master_and_says_when_it_is_ready(role: str) -> None:
    script = metadata(TEMPLATES[role](settings(machines={"nodes_per_worker": 3})))["startup-script"]
    subprocess.run([shutil.which("bash") or "bash", "-n"], input=script, text=True, check=True)
    assert "pyspark==" in script
    assert script.rstrip().endswith("say ready")
    assert ("spark://seep-demo-master:7077" in script) == (role == "worker")
    assert ("--cores 3" in script) == (role == "worker")


def test_the_start_up_script_names_no_host_but_that_of_the_metadata() -> None:
    script = metadata(bodies.worker_template(settings()))["startup-script"]
    assert set(re.findall(r"https?://([^/\s]+)", script)) == {"metadata.google.internal"}


def run_script(ending: str, **functions: str) -> str:
    """Runs the reporting part around one command, with stand-ins for what only a VM has."""
    report, ready = ((ROOT / "deploy/gcp" / name).read_text(encoding="utf-8") for name in ("report.sh", "ready.sh"))
    stand_ins = "\n".join(f"{name}() {{ {body}; }}" for name, body in functions.items())
    script = f"{report}\n{stand_ins}\n{ending}\n{ready}"
    done = subprocess.run(["bash"], input=script, text=True, capture_output=True, timeout=30, check=False)
    return done.stdout


SAYS = 'while [[ $1 != --data ]]; do shift; done; echo "said: $2"'


def test_the_script_says_ready_only_when_spark_has_said_that_it_is() -> None:
    joined = "echo 26/01/01 INFO Worker: Successfully registered with master spark://seep-demo-master:7077"
    assert run_script(":", curl=SAYS, journalctl=joined).splitlines() == ["said: starting", "said: ready"]
    assert run_script(":", curl=SAYS, journalctl="echo nothing yet", sleep="exit 9").splitlines() == ["said: starting"]


def test_the_script_says_which_command_failed() -> None:
    said = run_script("install() { python3 -c 'raise SystemExit(7)'; }; install", curl=SAYS).splitlines()[0]
    assert said == "said: failed: python3 -c 'raise SystemExit(7)' (exit code 7)"


def test_a_long_log_of_spark_does_not_hide_that_it_is_there() -> None:
    long = "echo Successfully registered with master; seq 100000"
    assert run_script(":", curl=SAYS, journalctl=long).splitlines()[-1] == "said: ready"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"project": "No Such"}, "project"),
        ({"tags": {"Team": "x"}}, "no label of Google Cloud"),
        ({"tags": {"team": "A B"}}, "no label of Google Cloud"),
        ({"tags": {"seep-role": "x"}}, "label of seep's own"),
        ({"machines": {"workers": 5, "most": 3}}, "machines.workers is 5"),
        ({"endpoint": "localhost:80"}, "endpoint"),
        ({"disk_gb": 1}, "disk_gb"),
        ({"regon": "x"}, "regon is unknown"),
    ],
)
def test_wrong_settings_are_refused_by_name(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        settings(**wrong)


def test_every_setting_is_described() -> None:
    assert [name for name, field in GcpSettings.model_fields.items() if not field.description] == []


def test_the_example_in_config_is_valid_and_says_what_the_defaults_are() -> None:
    example = read_settings("gcp", ROOT / "config/gcp.yaml")
    assert isinstance(example, GcpSettings)
    spelled_out = yaml.safe_load((ROOT / "config/gcp.yaml").read_text(encoding="utf-8"))["gcp"]
    default = settings().model_dump(exclude={"name", "project", "environment", "hourly"})
    assert {name: value for name, value in example.model_dump().items() if name in default} == default
    assert spelled_out.keys() == GcpSettings.model_fields.keys() - {"endpoint"}


def test_the_role_of_the_pool_allows_what_its_calls_need_and_nothing_about_rules_or_accounts() -> None:
    role = yaml.safe_load((ROOT / "deploy/gcp/role.yaml").read_text(encoding="utf-8"))
    allowed = set(role["includedPermissions"])
    assert {"compute.instances.create", "compute.instances.delete", "compute.instances.list"} <= allowed
    assert not [
        each for each in allowed if re.search(r"firewalls|serviceAccounts|Templates\.(create|delete)|iam", each)
    ]

"""The resources of a cluster in Google Cloud, as JSON for the Compute API."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from seep.deploy.gcp.settings import GcpSettings
from seep.deploy.startup import master_script, worker_script
from seep.shipped import shipped
from vmpool.gcp.names import CLUSTER, CORES, ROLE, SETTINGS, described, digest, named

Json = dict[str, Any]

_SCOPE = "https://www.googleapis.com/auth/compute"


def members_rule(settings: GcpSettings) -> Json:
    """Makes the rule by which VMs of the cluster can reach each other, and no others can reach them."""
    return _rule(settings, "members", ["0-65535"], {"sourceTags": [tag(settings)]})


def admin_rule(settings: GcpSettings) -> Json:
    """Makes the rule by which the address range of `admin` can reach SSH and Spark's pages."""
    ports = [str(port) for port in settings.admin_ports]
    return _rule(settings, "admin", ports, {"sourceRanges": [settings.admin]})


def master_template(settings: GcpSettings) -> Json:
    """Makes the template of the VM with Spark's master, the only one that may have credentials."""
    account = {"email": settings.service_account, "scopes": [_SCOPE]}
    return _template(settings, "master", {}, {"serviceAccounts": [account] if settings.service_account else []})


def worker_template(settings: GcpSettings) -> Json:
    """Makes the template of workers, for `up`, `scale` and the pool."""
    cores = {CORES: str(settings.machines.nodes_per_worker)}
    return _template(settings, "worker", cores, {"scheduling": _SPOT} if settings.machines.spot else {})


def instance(settings: GcpSettings, name: str, role: str) -> Json:
    """Makes a VM from the template of its role."""
    return {"name": name, "labels": labels(settings, role)}


def tag(settings: GcpSettings) -> str:
    """Returns the network tag of all VMs of the cluster, to which its rules apply."""
    return f"seep-{settings.name}"


def labels(settings: GcpSettings, role: str) -> dict[str, str]:
    """Returns the labels of the cluster's resources, after the user's own."""
    return settings.tags | {CLUSTER: settings.name, ROLE: role}


#: A VM that Google may end for lack of capacity, with 30 s of notice, and that is then deleted with its disk.
_SPOT = {
    "provisioningModel": "SPOT",
    "instanceTerminationAction": "DELETE",
    "automaticRestart": False,
    "onHostMaintenance": "TERMINATE",
}


def _rule(settings: GcpSettings, part: str, ports: list[str], sources: Json) -> Json:
    """Makes a rule; rules cannot have labels, so these are in the description."""
    rule = sources | {
        "name": named(settings.name, part),
        "network": f"global/networks/{settings.network}",
        "direction": "INGRESS",
        "targetTags": [tag(settings)],
        "allowed": [{"IPProtocol": "tcp", "ports": ports}],
    }
    return rule | {"description": described(labels(settings, part) | {SETTINGS: _digest(rule)})}


def _template(settings: GcpSettings, role: str, metadata: dict[str, str], more: Json) -> Json:
    properties = more | {
        "machineType": settings.machine_type(role),
        "tags": {"items": [tag(settings)]},
        "disks": [_disk(settings, role)],
        "networkInterfaces": [_interface(settings)],
        "metadata": {"items": _items(metadata | {"startup-script": _script(settings, role)})},
    }
    marks = labels(settings, role) | {SETTINGS: _digest(properties)}
    return {"name": named(settings.name, role), "properties": properties | {"labels": marks}}


def _disk(settings: GcpSettings, role: str) -> Json:
    made_from = {
        "sourceImage": f"projects/{settings.image_project}/global/images/{settings.image}",
        "diskSizeGb": str(settings.disk_gb),
        "diskType": settings.disk_type,
        "labels": labels(settings, role),
    }
    return {"boot": True, "autoDelete": True, "initializeParams": made_from}


def _interface(settings: GcpSettings) -> Json:
    region = settings.zone.rpartition("-")[0]
    subnetwork = {"subnetwork": f"regions/{region}/subnetworks/{settings.subnetwork}"} if settings.subnetwork else {}
    outside = {"accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "outside"}]} if settings.external_ip else {}
    return {"network": f"global/networks/{settings.network}"} | subnetwork | outside


def _items(metadata: dict[str, str]) -> list[Json]:
    """Returns the metadata of a VM; its script reports by guest attributes."""
    return [{"key": key, "value": value} for key, value in (metadata | {"enable-guest-attributes": "TRUE"}).items()]


def _script(settings: GcpSettings, role: str) -> str:
    """Returns the script of all clouds, within the lines by which a VM reports its progress here."""
    if role == "master":
        middle = master_script(settings.environment)
    else:
        cores = settings.machines.nodes_per_worker
        middle = worker_script(settings.environment, named(settings.name, "master"), cores)
    return _read("report.sh") + middle + _read("ready.sh")


@cache
def _read(name: str) -> str:
    return (shipped("deploy") / "gcp" / name).read_text(encoding="utf-8")


def _digest(body: Json) -> str:
    return digest(json.dumps(body, sort_keys=True))

"""Which cloud a VM asks whether it is about to be taken away."""

from __future__ import annotations

from vmpool.gcp.notices import GceNotices
from vmpool.interruption import Ec2Notices, Notices
from vmpool.settings import Metadata, VMSettings


def notices_of(vm: VMSettings) -> Notices | None:
    """As the settings say; None if nobody is to be asked.

    >>> notices_of(VMSettings()) is None
    True
    """
    kinds: dict[Metadata, type[Ec2Notices] | type[GceNotices]] = {Metadata.EC2: Ec2Notices, Metadata.GCE: GceNotices}
    kind = kinds.get(vm.notices)
    if kind is None:
        return None
    return kind() if vm.notices_url is None else kind(vm.notices_url)

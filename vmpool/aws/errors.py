"""Messages for errors of Amazon's interfaces: which call failed, for what, the answer, and what to do."""

from __future__ import annotations

from importlib import import_module

from primitives.errors import UserError
from vmpool.provider import ProviderError

_LOG_IN = "log in again or renew the credentials (AWS_* variables, the profile, or the role of this machine)"
_ALLOW = "the credentials do not allow this call; docs/deploy.md lists what each role needs"
_QUOTA = "the account's quota is used up; ask for more, end other instances, or choose smaller machines"
_CAPACITY = "the zone has none of these machines left just now; try again, another machine type, or not spot"
_LATER = "the service is busy; try again"

#: Code -> what to do, for errors that a retry does not help.
_DENIED = dict.fromkeys(
    ["UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "OptInRequired", "InvalidInstanceProfile"],
    _ALLOW,
) | dict.fromkeys(
    [
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    ],
    _LOG_IN,
)

#: Code -> what to do, for errors that may pass.
_SHORT = (
    dict.fromkeys(
        ["InstanceLimitExceeded", "LimitExceeded", "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded"], _QUOTA
    )
    | dict.fromkeys(["InsufficientInstanceCapacity", "InsufficientFreeAddressesInSubnet", "Unavailable"], _CAPACITY)
    | dict.fromkeys(["InternalError", "RequestLimitExceeded", "ServiceUnavailable", "Throttling"], _LATER)
)

#: Code -> message, for wrong settings.
_MISTAKEN = {
    "DefaultVpcDoesNotExist": "the region has no default VPC; set subnet",
    "InvalidAMIID.Malformed": "set image to an image that this region has",
    "InvalidAMIID.NotFound": "set image to an image that this region has",
    "InvalidAMIID.Unavailable": "set image to an image that this region has",
    "InvalidInstanceType": "set machines.master and machines.worker to types that this region has",
    "InvalidKeyPair.NotFound": "set key_name to a key pair that this region has",
    "InvalidLaunchTemplateName.NotFoundException": "bring the cluster up first: seep deploy ec2 up",
    "InvalidParameterCombination": "the image and the machine type may not fit together",
    "InvalidParameterValue": "look at the setting that it names",
    "InvalidSubnetID.NotFound": "set subnet to a subnet that this region has",
    "MissingInput": "the region has no default subnet; set subnet",
    "ParameterNotFound": "set image_parameter to one that this region has, or set image",
    "Unsupported": "the zone may not have this machine type; set machines.worker or subnet",
    "VPCIdNotSpecified": "the region has no default VPC; set subnet",
}

#: The library's errors without an answer -> what to do; the first three need someone to act.
_MISCONFIGURED = {
    "NoRegionError": "set region, or AWS_REGION",
    "ProfileNotFound": "set profile to one that ~/.aws/config has",
    "ParamValidationError": "look at the setting that it names",
}
_NO_CREDENTIALS = {
    "NoCredentialsError": "no credentials were found: set profile, or AWS_* variables, or run on a machine with a role",
    "PartialCredentialsError": _LOG_IN,
    "CredentialRetrievalError": _LOG_IN,
    "SSOTokenLoadError": _LOG_IN,
    "TokenRetrievalError": _LOG_IN,
    "UnauthorizedSSOTokenError": _LOG_IN,
}
_UNREACHABLE = "the service cannot be reached; look at the network, region and endpoint_url"


class AwsFault(ProviderError):
    """A call failed, though the settings may be right."""


class AwsMistake(UserError):
    """A call was refused because of the settings."""


def code_of(reason: Exception) -> str:
    """Returns Amazon's code of an error, or the name of the library's error."""
    answer = getattr(reason, "response", None) or {}
    return str(answer.get("Error", {}).get("Code") or type(reason).__name__)


def in_words(reason: Exception, call: str, about: str) -> AwsFault | AwsMistake:
    """Returns the error to raise for one of the library's.

    >>> print(in_words(TimeoutError("no answer"), "ec2 RunInstances", "worker-1"))
    worker-1: ec2 RunInstances failed (TimeoutError: no answer); the service cannot be reached; look at the network, \
region and endpoint_url
    """
    code = code_of(reason)
    mistake = _MISTAKEN.get(code) or _MISCONFIGURED.get(code)
    standing = _DENIED.get(code) or _NO_CREDENTIALS.get(code)
    advice = mistake or standing or _SHORT.get(code) or unforeseen(reason, _UNREACHABLE)
    said = f"{about}: {call} failed ({code}: {message_of(reason)}); {advice}"
    return AwsMistake(said) if mistake else AwsFault(said, again=standing is None)


def message_of(reason: Exception) -> str:
    """Returns the message of the service, or of the library, in one line."""
    answer = getattr(reason, "response", None) or {}
    return " ".join(str(answer.get("Error", {}).get("Message") or reason).split()).rstrip(".")


def unforeseen(reason: Exception, unreachable: str) -> str:
    """Returns the advice for any other error: an answer, or no answer at all."""
    return "see the service's documentation of this code" if hasattr(reason, "response") else unreachable


def failures() -> tuple[type[Exception], ...]:
    """Returns the library's errors; they are imported when needed, because the library is an extra."""
    errors = import_module("botocore.exceptions")
    return errors.ClientError, errors.BotoCoreError
